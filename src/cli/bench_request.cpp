#include "cli/bench_request.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cli/interrupt.h"
#include "cli/temporary_folder.h"
#include "launch/capture.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

/// Under mpirun if it is among the engines, so that MPI is at home; else under our launcher.
std::vector<std::string> starter(const CollectiveBench& bench, const std::string& self,
                                 const std::string& logs) {
  const std::string world = std::to_string(bench.world);
  const bool mpi = std::any_of(bench.rows.begin(), bench.rows.end(),
                               [](const BenchRow& row) { return row.engine == "mpi"; });
  if (!mpi) return {self, "run", "--nproc-per-node", world, "--log-dir", logs, "--"};
  // Each rank on its core, as under our launcher, where there are enough.
  const std::string binding = bench.world <= sysconf(_SC_NPROCESSORS_ONLN) ? "core" : "none";
  std::vector<std::string> command = {"mpirun", "--bind-to", binding, "--oversubscribe", "-n", world};
  if (geteuid() == 0) command.insert(command.begin() + 1, "--allow-run-as-root");
  return command;
}

}  // namespace

std::vector<RowTimes> run_bench_ranks(const CollectiveBench& bench) {
  const TemporaryFolder folder;
  const std::string request = (folder.path() / "request.json").string();
  const std::string result = (folder.path() / "result.json").string();
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::ofstream(request) << nlohmann::json(bench);
  std::vector<std::string> command = starter(bench, self, (folder.path() / "logs").string());
  command.insert(command.end(), {self, "bench-collective-rank", request, result});
  // The ranks end with this command, however it ends.
  command.insert(command.begin(), {"setpriv", "--pdeathsig", "TERM"});
  const auto run =
      capture_until_interrupted(command, launch::current_environment(), std::chrono::minutes(30));
  if (!run.ok()) {
    throw Error(fmt::format("lockstep bench {}: the ranks ended with exit code {}{}:\n{}{}", bench.collective,
                            run.exit_code, run.timed_out ? " at the time limit" : "", run.output,
                            run.errors));
  }
  std::ifstream stream(result);
  if (!stream) throw Error(fmt::format("lockstep bench {}: no result in {}", bench.collective, result));
  return nlohmann::json::parse(stream).get<std::vector<RowTimes>>();
}

}  // namespace lockstep::cli
