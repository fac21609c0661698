#include "cli/bench_collectives.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/size.h"
#include "launch/capture.h"
#include "lockstep/error.h"
#include "transport/engines.h"

namespace lockstep::cli {

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

namespace {

using Json = nlohmann::json;

struct Options {
  CollectiveBench bench;
  std::string engines = "shm";
  std::string algorithms;
  std::string sizes = "4,1KiB,64KiB,4MiB,64MiB";
  JsonOutput json;
};

/// Starts the ranks: under mpirun if it is among the engines, so that MPI is at home; else under our
/// launcher.
Json run_ranks(const Options& options) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto& engines = options.bench.engines;
  const std::string world = std::to_string(options.bench.world);
  const bool mpi = std::find(engines.begin(), engines.end(), "mpi") != engines.end();
  const std::filesystem::path logs =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-bench-{}", getpid());
  std::vector<std::string> command = {self,          "run", "--nproc-per-node", world, "--log-dir",
                                      logs.string(), "--"};
  if (mpi) {
    command = {"mpirun", "--oversubscribe", "-n", world};
    if (geteuid() == 0) command.insert(command.begin() + 1, "--allow-run-as-root");
    // Each rank on its core, as under our launcher, where there are enough.
    command.insert(command.begin() + 1,
                   {"--bind-to", options.bench.world <= sysconf(_SC_NPROCESSORS_ONLN) ? "core" : "none"});
  }
  const std::string result =
      (std::filesystem::temp_directory_path() / fmt::format("lockstep-bench-{}.json", getpid())).string();
  for (const std::string& word :
       {self, std::string("bench-collective-rank"), options.bench.collective, std::string("--engines"),
        options.engines, std::string("--sizes"), options.sizes, std::string("--rounds"),
        std::to_string(options.bench.rounds), std::string("--result"), result}) {
    command.push_back(word);
  }
  if (!options.algorithms.empty()) command.insert(command.end(), {"--algorithms", options.algorithms});
  if (options.bench.staged) command.push_back("--staged");
  // The ranks end with this command, however it ends.
  command.insert(command.begin(), {"setpriv", "--pdeathsig", "TERM"});
  const auto run = launch::capture(command, launch::current_environment(), std::chrono::minutes(30));
  std::error_code ignored;
  std::filesystem::remove_all(logs, ignored);
  if (!run.ok()) {
    throw Error(fmt::format("lockstep bench {}: the ranks ended with exit code {}{}:\n{}{}",
                            options.bench.collective, run.exit_code,
                            run.timed_out ? " at the time limit" : "", run.output, run.errors));
  }
  std::FILE* const file = std::fopen(result.c_str(), "r");
  if (file == nullptr)
    throw Error(fmt::format("lockstep bench {}: no result in {}", options.bench.collective, result));
  const Json document = Json::parse(file);
  std::fclose(file);
  std::filesystem::remove(result, ignored);
  return document;
}

void print(const Options& options, const Json& document) {
  fmt::print("{} over {} ranks, {} rounds alternated between the engines; time: median (lowest to highest)\n",
             options.bench.collective, options.bench.world, options.bench.rounds);
  fmt::print("{}\n\n",
             options.bench.staged ? "buffers outside of shared memory" : "buffers by Communicator::allocate");
  fmt::print("{:>10} {:<7} {:<18} {:>32} {:>11} {:>11} {:>7} {:>9}\n", "bytes", "engine", "algorithm",
             "time us", "algbw GB/s", "busbw GB/s", "wrong", "of floor");
  for (const auto& row : document["rows"]) {
    fmt::print("{:>10} {:<7} {:<18} {:>32} {:>11.3f} {:>11.3f} {:>7} {:>9}\n", row["bytes"].get<int64_t>(),
               row["engine"].get<std::string>(), row["algorithm"].get<std::string>(),
               fmt::format("{:.2f} ({:.2f} to {:.2f})", row["time_us"].get<double>(),
                           row["low_us"].get<double>(), row["high_us"].get<double>()),
               row["algbw_gbps"].get<double>(), row["busbw_gbps"].get<double>(), row["wrong"].get<int64_t>(),
               row["floor_us"].is_null() ? "-"
                                         : fmt::format("{:.0f}%", 100 * row["floor_us"].get<double>() /
                                                                      row["time_us"].get<double>()));
  }
  for (const auto& ratio : document["ratios"]) {
    fmt::print("{:>10} bytes: {} takes {:.2f} times as long as shm ({:.2f} to {:.2f} over rounds)\n",
               ratio["bytes"].get<int64_t>(), ratio["engine"].get<std::string>(),
               ratio["median"].get<double>(), ratio["low"].get<double>(), ratio["high"].get<double>());
  }
  fmt::print(
      "\nfloor: the same loads, additions and stores on private memory, on all ranks at once, in the same "
      "rounds\n");
}

int bench(Options& options) {
  options.bench.engines = words_of(options.engines);
  for (const auto& engine : options.bench.engines) transport::require_engine(engine, "--engines");
  for (const auto& size : words_of(options.sizes)) parse_bytes("--sizes", size);
  const Json document = run_ranks(options);
  if (options.json.prints_text()) print(options, document);
  options.json.write(document);
  for (const auto& row : document["rows"]) {
    if (row["wrong"] != 0) return 1;
  }
  return 0;
}

Action define(Flags flags, const char* collective) {
  const auto options = std::make_shared<Options>();
  options->bench.collective = collective;
  flags.number("--world", options->bench.world, 1, 64, "Ranks");
  flags.text("--engines", options->engines, "Engines, taken by turns: shm, gloo, mpi", "LIST");
  flags.text("--algorithms", options->algorithms, "Algorithms; without, each engine's own choice", "LIST");
  flags.text("--sizes", options->sizes, "Bytes of each rank's buffer", "LIST");
  flags.number("--rounds", options->bench.rounds, 1, 1000, "Rounds, alternated between the engines");
  flags.toggle("--staged", options->bench.staged, "Use buffers outside of shared memory");
  options->json.add_to(flags);
  return [options](const Invocation&) { return bench(*options); };
}

}  // namespace

Action define_bench_allreduce(Flags flags) {
  return define(flags, "allreduce");
}
Action define_bench_broadcast(Flags flags) {
  return define(flags, "broadcast");
}
Action define_bench_allgather(Flags flags) {
  return define(flags, "allgather");
}
Action define_bench_reducescatter(Flags flags) {
  return define(flags, "reducescatter");
}
Action define_bench_alltoall(Flags flags) {
  return define(flags, "alltoall");
}
Action define_bench_pingpong(Flags flags) {
  return define(flags, "pingpong");
}

}  // namespace lockstep::cli
