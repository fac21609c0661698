#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/asked_job.h"

namespace lockstep::cli {

/// The systems that a benchmark compares, by name; `lockstep` is one of them.
using AskedJobs = std::map<std::string, std::unique_ptr<AskedJob>>;

/// Starts the ranks of a system by our launcher: all systems in the same environment. `commands` is the
/// folder of `lockstep`, `folder` the benchmark's own.
std::unique_ptr<AskedJob> start_system(const std::string& name, int64_t world,
                                       const std::vector<std::string>& program,
                                       const std::filesystem::path& folder,
                                       const std::filesystem::path& commands);

/// `lockstep-torch`, which the ranks of Lockstep run. Throws Error if this build has none.
std::filesystem::path find_torch_command(const std::filesystem::path& commands);

/// What decides how fast ranks compute: the same for all systems.
struct BenchSettings {
  std::vector<std::string> cpus;                ///< By rank: "0", or "0,1" for several.
  int threads = 1;                              ///< Of each rank.
  std::string coretype;                         ///< OPENBLAS_CORETYPE; "": not set.
  std::map<std::string, std::string> versions;  ///< By job: lockstep, libtorch, pytorch.
};

/// Asks `{"do": "hello"}` of all ranks of all jobs. Throws Error, naming the benchmark, if a rank computes
/// under other settings than Lockstep's of its number. A rank that answers `{}` only keeps its place.
BenchSettings compare_settings(const std::string& bench, const AskedJobs& jobs);

/// Whether there are fewer cores than ranks.
bool shares_cores(const BenchSettings& settings);

/// The part of a benchmark's document that tells them, and the lines of its text that do.
nlohmann::json settings_json(const BenchSettings& settings);
void print_settings(const nlohmann::json& settings);

/// "1 rank", "2 ranks".
std::string counted(int64_t count, const std::string& what);

}  // namespace lockstep::cli
