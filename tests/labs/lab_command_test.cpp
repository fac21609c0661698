// `lockstep lab` as a learner runs it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/child.h"

namespace lockstep::lab {
namespace {

namespace fs = std::filesystem;
using testing::_;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A folder in which somebody learns.
class LabCommand : public testing::Test {
 protected:
  test::Finished lab(std::vector<std::string> words) const {
    words.insert(words.begin(), {LOCKSTEP_COMMAND, "lab"});
    return test::run_to_end(words, {.folder = folder_.path()});
  }

  fs::path file() const { return folder_ / "my_work" / "step09_ring_allreduce.cpp"; }
  static fs::path lesson_file(const std::string& name) {
    return fs::path(LOCKSTEP_TREE) / "labs/09_ring_allreduce" / name;
  }
  void write_solution() const { test::write_file(file(), test::read_file(lesson_file("solution.cpp"))); }
  /// The solution with a statement at the beginning of its function.
  void write_solution_with(const std::string& statement) const {
    auto text = test::read_file(lesson_file("solution.cpp"));
    const std::string begin = "std::span<float> data) {\n";
    text.insert(text.find(begin) + begin.size(), statement + "\n");
    test::write_file(file(), "#include <unistd.h>\n#include <cstdlib>\n" + text);
  }

  test::TemporaryFolder folder_;
};

TEST_F(LabCommand, GoesFromTheStarterToTheNextLesson) {
  EXPECT_EQ(lab({"start", "9"}).exit_code, 0);
  EXPECT_EQ(test::read_file(file()), test::read_file(lesson_file("starter.cpp")));
  const auto refused = lab({"check"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("wrong nothing added"),
                                    ContainsRegex("again: lockstep lab check 9 --seed [0-9]+ --world [0-9]+"),
                                    HasSubstr("lockstep lab hint 9 (hint 1 of 3)")));
  write_solution();
  const auto passed = lab({"check", "9"});
  EXPECT_EQ(passed.exit_code, 0) << passed.output;
  EXPECT_THAT(passed.output, AllOf(HasSubstr("passed ("), HasSubstr("lockstep lab start 10")));
  EXPECT_THAT(lab({"list"}).output, HasSubstr(" 9  passed"));
  EXPECT_THAT(lab({"progress"}).output, HasSubstr("1 of "));
}

TEST_F(LabCommand, NeverOverwritesWithoutAsking) {
  lab({"start", "9"});
  test::write_file(file(), "// mine\n");
  EXPECT_THAT(lab({"start", "9"}).output, HasSubstr("as you left it"));
  EXPECT_EQ(test::read_file(file()), "// mine\n");
  const auto refused = lab({"reset", "9"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--yes"));
  EXPECT_EQ(test::read_file(file()), "// mine\n");
  std::filesystem::create_symlink("gone", file().string() + ".before-reset-1");
  EXPECT_EQ(lab({"reset", "9", "--yes"}).exit_code, 0);
  EXPECT_EQ(test::read_file(file()), test::read_file(lesson_file("starter.cpp")));
  EXPECT_TRUE(std::filesystem::is_symlink(file().string() + ".before-reset-1"));
  EXPECT_EQ(test::read_file(file().string() + ".before-reset-2"), "// mine\n");
}

TEST_F(LabCommand, ShowsTheSolutionAfterPassingOrIfOneInsists) {
  lab({"start", "9"});
  const auto refused = lab({"solution", "9"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("not passed yet"));
  EXPECT_THAT(lab({"solution", "9", "--yes"}).output, HasSubstr("ring_all_reduce"));
  write_solution();
  lab({"check", "9"});
  EXPECT_EQ(lab({"solution", "9"}).output, test::read_file(lesson_file("solution.cpp")));
  EXPECT_THAT(lab({"why", "9"}).output, AllOf(HasSubstr("Why it works"), Not(HasSubstr("not passed"))));
}

TEST_F(LabCommand, GivesOneMoreHintEachTime) {
  lab({"start", "9"});
  EXPECT_THAT(lab({"hint"}).output, AllOf(HasSubstr("hint 1 of 3"), Not(HasSubstr("hint 2 of 3"))));
  EXPECT_THAT(lab({"hint"}).output, HasSubstr("hint 2 of 3"));
  EXPECT_THAT(lab({"hint"}).output, HasSubstr("hint 3 of 3"));
  EXPECT_EQ(lab({"hint"}).exit_code, 0);
}

TEST_F(LabCommand, FastTracksAModule) {
  EXPECT_THAT(lab({"fast-track", "all-reduce"}).output, HasSubstr("solve lesson 9"));
  EXPECT_EQ(lab({"fast-track", "all-reduce"}).exit_code, 1);
  write_solution();
  EXPECT_EQ(lab({"fast-track", "all-reduce"}).exit_code, 0);
  EXPECT_THAT(lab({"list"}).output, AllOf(HasSubstr(" 8  skipped"), HasSubstr(" 9  passed")));
}

TEST_F(LabCommand, RefusesByNameAndValue) {
  EXPECT_THAT(lab({"check", "9"}).errors,
              HasSubstr("my_work/step09_ring_allreduce.cpp: not there yet; hint: lockstep lab start 9"));
  EXPECT_THAT(lab({"start", "77"}).errors, HasSubstr("lesson 77: no such lesson"));
  EXPECT_THAT(lab({"start", "nine"}).errors, HasSubstr("lesson nine: not a number"));
  EXPECT_THAT(lab({"fast-track", "gpus"}).errors,
              HasSubstr("module gpus: no such module; hint: there are alone"));
  EXPECT_THAT(lab({"quiz", "9", "--answers", "7"}).errors, HasSubstr("'7' is no answer to question 1"));
  EXPECT_THAT(lab({"chekc"}).errors, HasSubstr("did you mean lockstep lab check?"));
  test::write_file(folder_ / "my_work" / "progress.txt", "passed everything\n");
  EXPECT_THAT(lab({"list"}).errors, HasSubstr("progress.txt:1: 'passed everything'"));
}

TEST_F(LabCommand, ListsAndTellsProgressAsJson) {
  lab({"start", "9"});
  const auto list = nlohmann::json::parse(lab({"list", "--json"}).output);
  EXPECT_EQ(list["lessons"][8]["number"], 9);
  EXPECT_EQ(list["lessons"][8]["file"], "my_work/step09_ring_allreduce.cpp");
  EXPECT_EQ(list["lessons"][8]["passed"], false);
  const auto progress = nlohmann::json::parse(lab({"progress", "--json"}).output);
  EXPECT_EQ(progress, list["progress"]);
  EXPECT_EQ(progress["done"], 0);
  EXPECT_EQ(progress["current"], 9);
}

TEST_F(LabCommand, SaysWhereItCannotWrite) {
  test::write_file(folder_ / "my_work", "not a folder");  // for root, too, whom no permission stops
  const auto refused = lab({"start", "9"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, AllOf(HasSubstr("my_work: Not a directory; hint: work in a folder"),
                                    Not(HasSubstr("filesystem error"))));
}

TEST_F(LabCommand, TellsTheCompilersWordsWithTheLearnersFile) {
  lab({"start", "9"});
  write_solution_with("int x = \"text\";");
  const auto printed = lab({"check", "9"});
  EXPECT_EQ(printed.exit_code, 1);
  EXPECT_THAT(printed.output,
              AllOf(HasSubstr("does not compile"), HasSubstr("my_work/step09_ring_allreduce.cpp:"),
                    Not(HasSubstr(folder_.path().string()))));
}

TEST_F(LabCommand, RefusesAFunctionWithoutItsReturn) {
  lab({"start", "9"});
  write_solution();
  test::write_file(file(), test::read_file(file()) + "inline int forgotten() {}\n");
  const auto refused = lab({"check", "9"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("does not compile"), HasSubstr("no return statement")));
}

TEST_F(LabCommand, ContainsWhateverTheCodeDoes) {
  lab({"start", "9"});
  const std::vector<std::pair<std::string, std::string>> deeds = {
      {"data[data.size() + 1] = 0;", "index out of range"},
      {"*reinterpret_cast<volatile int*>(8) = 0;", "crashed by SIGSEGV"},
      {"std::exit(4);", "left by itself"},
      {"std::exit(3);", "left by itself"},  // no code is the host's own
      {"_exit(0);", "left by itself"},
      {"_exit(1);", "left by itself"},
      {"while (true) rank.compute(1);", "endless"},
      {"sleep(1000);", "it did nothing but wait for 5 s, in rank"},
      {"throw std::runtime_error(\"my own words\");", "my own words"},
      {"throw 42;", "threw: the int 42"},
  };
  for (const auto& [statement, told] : deeds) {
    write_solution_with(statement);
    const auto printed = lab({"check", "9"});
    EXPECT_EQ(printed.exit_code, 1);
    EXPECT_THAT(printed.output, HasSubstr(told)) << statement;
  }
}

TEST_F(LabCommand, TellsWhatTheCodeLacksWhenItIsLoaded) {
  lab({"start", "9"});
  write_solution_with("extern void nowhere_defined(); nowhere_defined();");
  const auto printed = lab({"check", "9"});
  EXPECT_EQ(printed.exit_code, 1);
  EXPECT_THAT(printed.output, AllOf(HasSubstr("wrong cannot be loaded"),
                                    HasSubstr("undefined symbol: my_work::nowhere_defined()")));
}

TEST_F(LabCommand, ContainsWhatTheCodeDoesWhileItIsLoaded) {
  lab({"start", "9"});
  const std::string passed =
      R"({\"passed\": true, \"proved\": [\"all\"], \"notes\": [], \"trace\": {\"events\": []}})";
  const std::string forges =
      "std::ifstream line(\"/proc/self/cmdline\");\n"
      "for (std::string word; std::getline(line, word, '\\0');) {\n"
      "  if (word.ends_with(\".json\")) std::ofstream(word) << \"" +
      passed + "\";\n}\n";
  const std::vector<std::pair<std::string, std::string>> deeds = {
      {"_exit(0);", "left by itself"},
      {"std::exit(0);", "left by itself"},
      {"*reinterpret_cast<volatile int*>(8) = 0;", "crashed by SIGSEGV"},
      {forges + "_exit(0);", "left by itself"},
      {"std::atexit([] {" + forges + "});", "nothing added"},
  };
  for (const auto& [statement, told] : deeds) {
    test::write_file(file(), "#include <unistd.h>\n#include <fstream>\n#include <string>\n" +
                                 test::read_file(lesson_file("starter.cpp")) +
                                 "\nstatic const int cheat = [] { " + statement + " return 0; }();\n");
    const auto printed = lab({"check", "9"});
    EXPECT_EQ(printed.exit_code, 1) << printed.output;
    EXPECT_THAT(printed.output, AllOf(HasSubstr(told), Not(HasSubstr("passed ("))));
  }
}

TEST_F(LabCommand, ChecksInATreeWhosePathHasBlanksAndQuotes) {
  // The tree as links, its own command and its own build.
  const auto tree = folder_ / "my $tree's";
  const auto build = tree / "build/release";
  fs::create_directories(build / "bin");
  for (const char* name : {"include", "labs", "src"})
    fs::create_symlink(fs::path(LOCKSTEP_TREE) / name, tree / name);
  const fs::path built = fs::path(LOCKSTEP_COMMAND).parent_path();
  fs::copy_file(built / "lockstep", build / "bin/lockstep");
  fs::create_symlink(built / "lab-host", build / "bin/lab-host");
  test::write_file(build / "build.ninja",
                   "rule touch\n command = touch $out\nbuild made: touch\nbuild lab-host: phony made\n");
  std::string quoted = "\"";  // as CMake quotes
  for (const char c : tree.string()) quoted += c == '$' ? "\\$" : std::string(1, c);
  auto commands = nlohmann::json::parse(test::read_file(built.parent_path() / "compile_commands.json"));
  for (auto& entry : commands) {
    auto command = entry.at("command").get<std::string>();
    const std::string include = std::string("-I") + LOCKSTEP_TREE + "/include";
    if (const auto at = command.find(include); at != std::string::npos)
      command.replace(at, include.size(), "-I" + quoted + "/include\"");
    entry["command"] = command;
  }
  test::write_file(build / "compile_commands.json", commands.dump());
  test::write_file(file(), test::read_file(lesson_file("solution.cpp")));
  const auto checked =
      test::run_to_end({(build / "bin/lockstep").string(), "lab", "check", "9"}, {.folder = folder_.path()});
  EXPECT_EQ(checked.exit_code, 0) << checked.output << checked.errors;
  EXPECT_THAT(checked.errors, HasSubstr("building the checks of the lessons without LibTorch, once"));
}

TEST_F(LabCommand, EndsProcessesThatTheCodeLeft) {
  lab({"start", "9"});
  write_solution_with("if (rank.rank() == 0 && fork() == 0) { setsid(); pause(); }");
  test::Child child({LOCKSTEP_COMMAND, "lab", "check", "9"}, {.folder = folder_.path()});
  EXPECT_EQ(child.wait(), 0) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("behind; they were ended"));
  EXPECT_TRUE(child.leaves_nothing());
}

TEST_F(LabCommand, ReplaysAFailureByItsSeedAndWorld) {
  lab({"start", "9"});
  test::write_file(file(), test::read_file(lesson_file("mutants/wrong_sum.cpp")));
  const auto first = nlohmann::json::parse(lab({"check", "9", "--json"}).output);
  EXPECT_EQ(first.at("name"), "wrong sum");
  std::istringstream replay(first.at("replay").get<std::string>());
  std::vector<std::string> words{std::istream_iterator<std::string>(replay), {}};
  ASSERT_THAT(words, ElementsAre("lockstep", "lab", "check", "9", "--seed", _, "--world", "3"));
  words.erase(words.begin(), words.begin() + 2);
  words.emplace_back("--json");
  const auto again = nlohmann::json::parse(lab(words).output);
  EXPECT_EQ(again.at("replay"), first.at("replay"));
  EXPECT_EQ(again.at("what"), first.at("what"));
}

TEST_F(LabCommand, BuildsOnTheLearnersOwnCode) {
  const fs::path labs = fs::path(LOCKSTEP_TREE) / "labs";
  const auto take = [&](const std::string& from, const std::string& to) {
    test::write_file(folder_ / "my_work" / to, test::read_file(labs / from));
  };
  take("11_naive_dp/solution.cpp", "step11_naive_dp.cpp");
  take("07_primitives/solution.cpp", "step07_primitives.cpp");
  EXPECT_THAT(lab({"check", "11", "--mine"}).errors, HasSubstr("lockstep lab start 9"));
  take("09_ring_allreduce/solution.cpp", "step09_ring_allreduce.cpp");
  EXPECT_EQ(lab({"check", "11", "--mine"}).exit_code, 0);
  take("09_ring_allreduce/mutants/counted_twice.cpp", "step09_ring_allreduce.cpp");
  EXPECT_EQ(lab({"check", "11", "--mine"}).exit_code, 1);
  EXPECT_EQ(lab({"check", "11"}).exit_code, 0) << "the library's own all-reduce";
}

TEST_F(LabCommand, LetsALessonCallTheLibraryThatSaysSo) {
  for (const auto& [number, name, file] : {std::tuple("1", "01_train_step", "step01_train_step.cpp"),
                                           std::tuple("5", "05_manual", "step05_manual.cpp")}) {
    test::write_file(folder_ / "my_work" / file,
                     test::read_file(fs::path(LOCKSTEP_TREE) / "labs" / name / "solution.cpp"));
    const auto passed = lab({"check", number});
    EXPECT_EQ(passed.exit_code, 0) << passed.output;
  }
}

TEST_F(LabCommand, LeavesNothingWhenItIsInterrupted) {
  lab({"start", "9"});
  write_solution_with("while (true) pause();");
  test::Child child({LOCKSTEP_COMMAND, "lab", "check", "9"}, {.folder = folder_.path()});
  const auto is_checking = [&] {
    for (const pid_t pid : child.family()) {
      if (test::read_file(fmt::format("/proc/{}/comm", pid)) == "lab-host\n") return true;
    }
    return false;
  };
  EXPECT_TRUE(test::eventually(is_checking));
  child.send(SIGINT);
  EXPECT_EQ(child.wait(), 128 + SIGINT);
  EXPECT_TRUE(child.leaves_nothing());
}

TEST_F(LabCommand, GradesAQuiz) {
  const auto asked = lab({"quiz", "9", "--seed", "5"});
  EXPECT_EQ(asked.exit_code, 0);
  EXPECT_THAT(asked.output, HasSubstr("--seed 5 --answers"));
  const auto graded = lab({"quiz", "9", "--seed", "5", "--answers", "1,1,1"});
  EXPECT_THAT(graded.output, AllOf(HasSubstr("of 3 right"), HasSubstr("the answer:")));
  EXPECT_EQ(graded.exit_code, 1);
}

TEST_F(LabCommand, WatchesAndChecksWhatIsSaved) {
  lab({"start", "9"});
  test::Child child({LOCKSTEP_COMMAND, "lab", "--plain"}, {.folder = folder_.path()});
  EXPECT_TRUE(
      test::eventually([&] { return child.output().find("wrong nothing added") != std::string::npos; }));
  write_solution();
  EXPECT_TRUE(test::eventually([&] { return child.output().find("passed (") != std::string::npos; }))
      << child.output();
  child.send(SIGINT);
  EXPECT_EQ(child.wait(), 130);
}

/// A learner at a terminal.
class Terminal {
 public:
  explicit Terminal(const fs::path& folder) {
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      setenv("TERM", "xterm", 1);
      if (chdir(folder.c_str()) == 0) execl(LOCKSTEP_COMMAND, LOCKSTEP_COMMAND, "lab", nullptr);
      _exit(127);
    }
  }
  ~Terminal() {
    if (!is_over_) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void press(char key) const { ASSERT_EQ(write(fd_, &key, 1), 1); }
  bool shows(const std::string& text) {
    return test::eventually([&] {
      pollfd polled{fd_, POLLIN, 0};
      char bytes[4096];
      while (poll(&polled, 1, 10) > 0 && (polled.revents & POLLIN) != 0) {
        const auto count = read(fd_, bytes, sizeof bytes);
        if (count <= 0) break;
        screen_.append(bytes, static_cast<size_t>(count));
      }
      const auto at = screen_.find(text);
      if (at != std::string::npos) screen_.erase(0, at + text.size());
      return at != std::string::npos;
    });
  }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    is_over_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
  bool is_over_ = false;
  std::string screen_;
};

TEST_F(LabCommand, ObeysKeysAtATerminal) {
  lab({"start", "9"});
  Terminal terminal(folder_.path());
  ASSERT_TRUE(terminal.shows("nothing added"));
  ASSERT_TRUE(terminal.shows("q quit"));
  terminal.press('h');
  EXPECT_TRUE(terminal.shows("hint 1 of 3"));
  terminal.press('r');
  EXPECT_TRUE(terminal.shows("Reduce-scatter"));
  terminal.press('l');
  EXPECT_TRUE(terminal.shows("my_work/step09_ring_allreduce.cpp"));
  terminal.press('q');
  EXPECT_EQ(terminal.wait(), 0);
}

}  // namespace
}  // namespace lockstep::lab
