#include "lab/course.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/error.h"

namespace lockstep::lab {

namespace {

nlohmann::json read_json(const std::filesystem::path& file) {
  try {
    return nlohmann::json::parse(read_text(file));
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: {}", file.string(), error.what()));
  }
}

template <typename T>
T value(const nlohmann::json& json, const std::filesystem::path& file, const char* key) {
  try {
    return json.at(key).get<T>();
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: {}: {}", file.string(), key, error.what()));
  }
}

Lesson read_lesson(const std::filesystem::path& folder) {
  const auto file = folder / "lesson.json";
  const auto json = read_json(file);
  Lesson lesson;
  lesson.folder = folder;
  lesson.name = folder.filename().string();
  lesson.number = std::stoi(lesson.name.substr(0, 2));
  lesson.title = value<std::string>(json, file, "title");
  lesson.module = value<std::string>(json, file, "module");
  lesson.file = value<std::string>(json, file, "file");
  lesson.needs_torch = value<bool>(json, file, "torch");
  lesson.may_call_library = json.contains("library") && value<bool>(json, file, "library");
  lesson.uses = value<std::vector<int>>(json, file, "uses");
  lesson.starter_fails = value<std::string>(json, file, "starter_fails");
  lesson.plan = value<std::string>(json, file, "plan");
  return lesson;
}

bool is_lesson(const std::filesystem::path& folder) {
  const auto name = folder.filename().string();
  return name.size() > 3 && std::isdigit(static_cast<unsigned char>(name[0])) != 0 &&
         std::isdigit(static_cast<unsigned char>(name[1])) != 0 && name[2] == '_' &&
         std::filesystem::exists(folder / "lesson.json");
}

}  // namespace

const Lesson& Course::lesson(int number) const {
  for (const auto& one : lessons) {
    if (one.number == number) return one;
  }
  std::vector<int> numbers;
  for (const auto& one : lessons) numbers.push_back(one.number);
  throw UsageError(
      fmt::format("lesson {}: no such lesson; hint: there are {}", number, fmt::join(numbers, ", ")));
}

const Lesson* Course::after(int number) const {
  for (const auto& one : lessons) {
    if (one.number > number) return &one;
  }
  return nullptr;
}

const Module& Course::module(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& one : modules) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  throw UsageError(
      fmt::format("module {}: no such module; hint: there are {}", name, fmt::join(names, ", ")));
}

Course read_course(const std::filesystem::path& tree) {
  Course course;
  course.tree = tree;
  const auto file = tree / "labs" / "course.json";
  for (const auto& module : value<nlohmann::json>(read_json(file), file, "modules")) {
    course.modules.push_back({value<std::string>(module, file, "name"),
                              value<std::string>(module, file, "title"),
                              value<int>(module, file, "fast_track")});
  }
  for (const auto& entry : std::filesystem::directory_iterator(tree / "labs")) {
    if (entry.is_directory() && is_lesson(entry.path())) course.lessons.push_back(read_lesson(entry.path()));
  }
  std::ranges::sort(course.lessons, {}, &Lesson::number);
  for (const auto& lesson : course.lessons) course.module(lesson.module);
  return course;
}

std::filesystem::path source_tree() {
  // <tree>/build/release/bin/lockstep
  auto tree = std::filesystem::read_symlink("/proc/self/exe");
  for (int level = 0; level < 4; ++level) tree = tree.parent_path();
  if (!std::filesystem::exists(tree / "labs" / "course.json")) {
    throw UsageError(
        "lockstep lab: this command was not built in a source tree; hint: use ./lockstep lab there");
  }
  return tree;
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw Error(fmt::format("{}: cannot be read", file.string()));
  return text.str();
}

}  // namespace lockstep::lab
