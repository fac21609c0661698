// Every lesson has all of its parts, and what its text says is so.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "lab/course.h"
#include "lab/desk.h"
#include "lab/page.h"
#include "lab/quiz.h"
#include "support/child.h"

namespace lockstep::lab {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const Course& course() {
  static const Course all = read_course(LOCKSTEP_TREE);
  return all;
}

class EveryLesson : public testing::TestWithParam<int> {
 protected:
  const Lesson& lesson() const { return course().lesson(GetParam()); }
  std::string text() const { return read_text(lesson().folder / "lesson.md"); }
};

std::vector<int> numbers() {
  std::vector<int> all;
  for (const auto& lesson : course().lessons) all.push_back(lesson.number);
  return all;
}

std::string number_name(const testing::TestParamInfo<int>& info) {
  return std::to_string(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, EveryLesson, testing::ValuesIn(numbers()), number_name);

TEST_P(EveryLesson, HasAllItsFiles) {
  for (const char* const name : {"lesson.md", "hints.md", "why.md", "quiz.json", "starter.cpp",
                                 "solution.cpp", "check.cpp", "seam.inc"})
    EXPECT_TRUE(fs::exists(lesson().folder / name)) << name;
  EXPECT_EQ(lesson().file.substr(0, 7), fmt::format("step{:02}_", lesson().number));
}

TEST_P(EveryLesson, HasAllPartsOfItsText) {
  EXPECT_THAT(text(), testing::StartsWith(fmt::format("# {}. ", lesson().number)));
  for (const char* const part : {"\n## The idea", "\n## The picture", "\n## The maths", "\n## In the library",
                                 "\n## Your task", "\n## Questions", "\n## In production", "\n## Challenge"})
    EXPECT_THAT(text(), HasSubstr(part));
  EXPECT_THAT(text(), HasSubstr("<details><summary>Why"));
  EXPECT_THAT(text(), HasSubstr("docs/"));
}

TEST_P(EveryLesson, HasThreeHints) {
  const auto hints = hints_of(lesson());
  ASSERT_EQ(hints.size(), 3U);
  for (const auto& hint : hints) EXPECT_GT(hint.size(), 20U);
}

TEST_P(EveryLesson, HasAQuizThatHoldsForEveryDraw) {
  for (uint64_t seed = 1; seed <= 200; ++seed) EXPECT_GE(make_quiz(lesson(), seed).size(), 3U);
  EXPECT_GE(drawn_questions(lesson()), 1);
}

/// A ```console block of a lesson: a command of ours and what it prints.
struct Picture {
  std::string command;
  std::string printed;
};

std::vector<Picture> pictures_in(const std::string& text) {
  std::vector<Picture> pictures;
  std::istringstream stream(text);
  bool is_inside = false;
  for (std::string line; std::getline(stream, line);) {
    if (line == "```console") {
      is_inside = true;
    } else if (line == "```") {
      is_inside = false;
    } else if (is_inside && line.starts_with("$ lockstep ")) {
      pictures.push_back({line.substr(2), ""});
    } else if (is_inside && !pictures.empty()) {
      pictures.back().printed += line + '\n';
    }
  }
  return pictures;
}

TEST_P(EveryLesson, ShowsWhatCommandsReallyPrint) {
  const auto pictures = pictures_in(text());
  EXPECT_FALSE(pictures.empty());
  for (const auto& picture : pictures) {
    test::Child child({"bash", "-c",
                       fmt::format("PATH={}:$PATH; {}", fs::path(LOCKSTEP_COMMAND).parent_path().string(),
                                   picture.command)});
    EXPECT_EQ(child.wait(), 0) << picture.command << child.errors();
    EXPECT_THAT(child.output(), HasSubstr(picture.printed)) << picture.command;
  }
}

/// Lines that a terminal of 100 columns breaks where it likes. What a command prints is as wide as it is.
std::vector<std::string> too_wide(const std::string& markdown) {
  std::vector<std::string> lines;
  std::istringstream page(page_text(markdown, {}, true));
  for (std::string line; std::getline(page, line);) {
    if (line.size() > 100 && !line.starts_with("    ")) lines.push_back(line);
  }
  return lines;
}

TEST_P(EveryLesson, FitsATerminal) {
  EXPECT_THAT(too_wide(text()), testing::IsEmpty());
  EXPECT_THAT(too_wide(read_text(lesson().folder / "why.md")), testing::IsEmpty());
  for (const auto& hint : hints_of(lesson())) EXPECT_THAT(too_wide(hint), testing::IsEmpty());
}

TEST(LabPage, BreaksTablesCommandsAndQuestions) {
  const Style narrow{.columns = 40};
  EXPECT_EQ(page_text("| a | b |\n|---|---|\n| one | two |\n", narrow, true),
            "  a    b\n  ---  ---\n  one  two\n");
  EXPECT_EQ(
      page_text("| name | text |\n|---|---|\n| x | some words that are longer than the line is |\n", narrow,
                true),
      "  name  text\n  ----  --------------------------------\n  x     some words that are longer than\n"
      "        the line is\n");
  EXPECT_EQ(page_text("```console\n$ lockstep plan allreduce --algorithm ring\nprinted\n```\n", narrow, true),
            "    $ lockstep plan allreduce \\\n      --algorithm ring\n    printed\n");
  EXPECT_THAT(
      page_text("<details><summary>Why does <code>gpipe</code> need nothing but that?</summary>\n\nSo."
                "\n</details>\n",
                narrow, false),
      testing::StartsWith("? Why does `gpipe` need nothing but\n  that?\n"));
  EXPECT_EQ(wrapped("the ring takes as many bytes: 2(P - 1) S", 34, 0),
            "the ring takes as many bytes:\n2(P - 1) S");
}

TEST_P(EveryLesson, NamesFilesThatExist) {
  const auto page = text();
  static const std::regex kFile("`((src|include|docs|examples|config)/[A-Za-z0-9_/.]+)`");
  for (auto found = std::sregex_iterator(page.begin(), page.end(), kFile); found != std::sregex_iterator();
       ++found)
    EXPECT_TRUE(fs::exists(fs::path(LOCKSTEP_TREE) / (*found)[1].str())) << (*found)[1];
  static const std::regex kLink("\\]\\(([^):]+)\\)");
  for (auto found = std::sregex_iterator(page.begin(), page.end(), kLink); found != std::sregex_iterator();
       ++found) {
    const std::string target = (*found)[1];
    EXPECT_TRUE(fs::exists(lesson().folder / target.substr(0, target.find('#')))) << target;
  }
}

TEST(TheCourse, IsListedInItsOutlineAndNamesWhatExists) {
  const fs::path docs = fs::path(LOCKSTEP_TREE) / "docs";
  const auto outline = read_text(docs / "outline.md");
  for (const auto& lesson : course().lessons) {
    EXPECT_THAT(outline, HasSubstr(fmt::format("| {} | [", lesson.number)));
    EXPECT_THAT(outline, HasSubstr(fmt::format("(../labs/{}/lesson.md)", lesson.name)));
  }
  for (const char* const page : {"outline.md", "index.md"}) {
    const auto text = read_text(docs / page);
    static const std::regex kLink("\\]\\(([^):]+)\\)");
    for (auto found = std::sregex_iterator(text.begin(), text.end(), kLink); found != std::sregex_iterator();
         ++found)
      EXPECT_TRUE(fs::exists(docs / (*found)[1].str())) << page << ": " << (*found)[1];
    static const std::regex kFile("`((examples|tests|config)/[A-Za-z0-9_/.]+\\.(cpp|sbatch))");
    for (auto found = std::sregex_iterator(text.begin(), text.end(), kFile); found != std::sregex_iterator();
         ++found)
      EXPECT_TRUE(fs::exists(docs.parent_path() / (*found)[1].str())) << page << ": " << (*found)[1];
  }
}

TEST(TheCourse, HasItsFastTracks) {
  for (const auto& module : course().modules)
    EXPECT_EQ(course().lesson(module.fast_track).module, module.name);
}

TEST(TheCourse, ListsEveryFolderInTheBuild) {
  EXPECT_EQ(course().lessons.size(), static_cast<size_t>(LOCKSTEP_LESSON_COUNT))
      << "hint: labs/CMakeLists.txt lists the lessons";
}

}  // namespace
}  // namespace lockstep::lab
