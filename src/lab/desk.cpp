#include "lab/desk.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "lockstep/error.h"

namespace lockstep::lab {

namespace {

/// Does what writes into the learner's folder, and says which that is if it cannot.
template <typename Body>
auto writing(const Desk& desk, const Body& body) {
  try {
    return body();
  } catch (const std::filesystem::filesystem_error& error) {
    throw UsageError(fmt::format("{}: {}; hint: work in a folder that you may write",
                                 std::filesystem::absolute(desk.work).string(), error.code().message()));
  }
}

}  // namespace

const Lesson& Desk::lesson(const std::string& word) const {
  if (word.empty()) {
    if (const Lesson* now = current()) return *now;
    return course.lessons.back();
  }
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size())
    throw UsageError(fmt::format("lesson {}: not a number; hint: lockstep lab list shows all lessons", word));
  return course.lesson(number);
}

const Lesson* Desk::current() const {
  if (state.current > 0) return &course.lesson(state.current);
  for (const auto& lesson : course.lessons) {
    if (!state.is_done(lesson.number)) return &lesson;
  }
  return nullptr;
}

void Desk::save() const {
  writing(*this, [&] { write_state(work / "progress.txt", state); });
}

Desk open_desk() {
  Desk desk{read_course(source_tree()), "my_work", {}};
  desk.state = read_state(desk.work / "progress.txt");
  return desk;
}

bool start_lesson(Desk& desk, const Lesson& lesson) {
  const bool is_new = writing(desk, [&] {
    std::filesystem::create_directories(desk.work);
    const bool is_absent = !std::filesystem::exists(desk.file(lesson));
    if (is_absent) std::filesystem::copy_file(lesson.folder / "starter.cpp", desk.file(lesson));
    return is_absent;
  });
  desk.state.current = lesson.number;
  desk.save();
  return is_new;
}

std::filesystem::path reset_lesson(Desk& desk, const Lesson& lesson) {
  std::filesystem::path kept;
  const auto file = desk.file(lesson);
  if (std::filesystem::exists(file)) {
    for (int number = 1; kept.empty() || std::filesystem::exists(std::filesystem::symlink_status(kept));
         ++number)
      kept = fmt::format("{}.before-reset-{}", file.string(), number);
    writing(desk, [&] { std::filesystem::rename(file, kept); });
  }
  start_lesson(desk, lesson);
  return kept;
}

std::filesystem::path trace_file(const Desk& desk, const Lesson& lesson) {
  return desk.work / "traces" / (lesson.name + ".json");
}

void keep_trace(const Desk& desk, const Lesson& lesson, const std::string& json) {
  std::filesystem::create_directories(desk.work / "traces");
  std::ofstream(trace_file(desk, lesson)) << json;
}

std::vector<std::string> hints_of(const Lesson& lesson) {
  std::vector<std::string> hints;
  std::istringstream text(read_text(lesson.folder / "hints.md"));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("## ")) {
      hints.emplace_back();
    } else if (!hints.empty() && (!line.empty() || !hints.back().empty())) {
      hints.back() += line + '\n';
    }
  }
  for (auto& hint : hints) hint.erase(hint.find_last_not_of('\n') + 1);
  return hints;
}

}  // namespace lockstep::lab
