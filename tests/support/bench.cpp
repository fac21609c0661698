#include "support/bench.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "support/child.h"

namespace lockstep::test {

namespace {

namespace fs = std::filesystem;

bool holds_request(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "request.json") return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> bench_command(const std::string& kind, const std::vector<std::string>& words) {
  std::vector<std::string> command = {LOCKSTEP_COMMAND, "bench", kind};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::vector<std::string> names_of(const nlohmann::json& rows, const char* key) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row[key]);
  return names;
}

Ended stop_at_work(const std::vector<std::string>& command, int signal) {
  const TemporaryFolder folder;
  Child child(command, {.environment = {{"TMPDIR", folder.path().string()}}});
  if (!eventually([&] { return holds_request(folder.path()); })) {
    throw std::runtime_error("it never began: " + child.errors());
  }
  child.send(signal);
  const int exit_code = child.wait();
  return {.exit_code = exit_code,
          .errors = child.errors(),
          .left_nothing = child.leaves_nothing() && fs::is_empty(folder.path())};
}

}  // namespace lockstep::test
