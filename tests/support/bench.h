#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::test {

/// `lockstep bench KIND WORDS`.
std::vector<std::string> bench_command(const std::string& kind, const std::vector<std::string>& words);

/// The texts under `key` in the rows of a benchmark's JSON.
std::vector<std::string> names_of(const nlohmann::json& rows, const char* key);

/// How a benchmark ended.
struct Ended {
  int exit_code;
  std::string errors;
  bool left_nothing;  ///< Neither a process nor a temporary file.
};

/// Starts a benchmark, sends it `signal` when its ranks have been told their work, and waits for the end.
/// Throws if either takes more than kPatience.
Ended stop_at_work(const std::vector<std::string>& command, int signal);

}  // namespace lockstep::test
