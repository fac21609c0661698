#include "lab/state.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "launch/whole_file.h"
#include "lockstep/error.h"

namespace lockstep::lab {

State read_state(const std::filesystem::path& file) {
  State state;
  std::ifstream stream(file);
  std::error_code ignored;
  if (!stream && std::filesystem::exists(file, ignored))
    throw UsageError(
        fmt::format("{}: cannot be read; hint: give yourself the right to, or remove it", file.string()));
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    std::istringstream words(line);
    std::string word;
    int lesson = 0, count = 0;
    if (!(words >> word) || word[0] == '#') continue;
    if (!(words >> lesson) || lesson < 1 || lesson > 99 ||
        (word == "hints" && (!(words >> count) || count < 0)))
      word.clear();
    if (word == "current") {
      state.current = lesson;
    } else if (word == "passed") {
      state.passed.insert(lesson);
    } else if (word == "skipped") {
      state.skipped.insert(lesson);
    } else if (word == "hints") {
      state.hints[lesson] = count;
    } else {
      throw UsageError(
          fmt::format("{}:{}: '{}' is none of: current N, passed N, skipped N, hints N COUNT; hint: mend "
                      "the line or remove it",
                      file.string(), number, line));
    }
  }
  return state;
}

void write_state(const std::filesystem::path& file, const State& state) {
  std::filesystem::create_directories(file.parent_path());
  std::ostringstream stream;
  stream << "# How far you are. `lockstep lab` writes it; you may, too.\n";
  if (state.current > 0) stream << "current " << state.current << '\n';
  for (const int lesson : state.passed) stream << "passed " << lesson << '\n';
  for (const int lesson : state.skipped) stream << "skipped " << lesson << '\n';
  for (const auto& [lesson, count] : state.hints) stream << "hints " << lesson << ' ' << count << '\n';
  if (const int reason = launch::write_whole_file(file, stream.str())) {
    throw std::filesystem::filesystem_error(file.string(), {reason, std::generic_category()});
  }
}

}  // namespace lockstep::lab
