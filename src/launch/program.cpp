#include "launch/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "lockstep/error.h"

namespace lockstep::launch {

namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::string on_path(const std::string& name, const Environment& environment) {
  const auto path = environment.find("PATH");
  std::string_view rest =
      path == environment.end() ? std::string_view("/usr/local/bin:/usr/bin:/bin") : path->second;
  for (;;) {
    const auto colon = rest.find(':');
    const fs::path folder = rest.substr(0, colon).empty() ? "." : fs::path(rest.substr(0, colon));
    if (is_program(folder / name)) return (folder / name).string();
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  std::error_code ignored;
  const std::string hint =
      fs::exists(name, ignored) ? fmt::format("did you mean ./{}?", name) : "give its path, or mend PATH";
  throw UsageError(fmt::format("program {}: not found on PATH; hint: {}", name, hint));
}

/// Refuses what is not there, cannot be looked at, or is a folder.
void require_file(const std::string& name) {
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  if (!fs::exists(status)) {
    const bool missing = status.type() == fs::file_type::not_found;
    throw UsageError(fmt::format("program {}: {}", name, missing ? "no such file" : error.message()));
  }
  if (fs::is_directory(status)) throw UsageError(fmt::format("program {}: this is a folder", name));
}

std::string locate(const std::string& name, const Environment& environment) {
  if (name.empty()) throw UsageError("program '': the name is empty");
  if (name.find('/') == std::string::npos) return on_path(name, environment);
  require_file(name);
  if (!is_program(name)) {
    throw UsageError(
        fmt::format("program {0}: not executable; hint: chmod +x {0}, or name its interpreter", name));
  }
  return name;
}

}  // namespace

std::vector<std::string> find_program(const std::vector<std::string>& words, const Environment& environment) {
  if (words.empty())
    throw UsageError("no program given; hint: lockstep run --nproc-per-node 2 -- ./my_program");
  std::vector<std::string> command = words;
  if (words[0].ends_with(".py")) {
    require_file(words[0]);
    const auto chosen = environment.find("PYTHON_EXEC");
    const std::string python = chosen == environment.end() ? "python3" : chosen->second;
    command.insert(command.begin(), {python, "-u"});
  }
  command[0] = locate(command[0], environment);
  return command;
}

}  // namespace lockstep::launch
