#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/bench_rank.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/sample.h"
#include "cli/temporary_folder.h"
#include "launch/capture.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;
using Command = std::vector<std::string>;

struct LauncherBenchOptions {
  int64_t world = 2;
  int64_t rounds = 9;
  std::string peers;
  JsonOutput json;
};

/// A launcher under test.
struct Launcher {
  std::string name;
  Command start;  ///< Up to where the program's words follow.
  Sample notice_ms = {};
  Sample gone_ms = {};
  Sample empty_job_ms = {};
};

constexpr auto kLongestJob = std::chrono::seconds(60);

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A folder for one round, removed afterwards.
Command joined(Command first, const Command& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::optional<double> read_stamp(const fs::path& file) {
  std::ifstream stream(file);
  double value = 0;
  return stream >> value ? std::optional(value) : std::nullopt;
}

/// One rank kills itself; the others note when they are asked to stop.
void measure_death(Launcher& contender, const fs::path& self, int64_t world) {
  const TemporaryFolder folder;
  auto environment = launch::current_environment();
  environment["LOCKSTEP_BENCH_WORLD"] = std::to_string(world);
  const auto run = capture_until_interrupted(
      joined(contender.start, {self.string(), "bench-rank", folder.path().string()}), environment,
      kLongestJob);
  const double gone = now_ms();
  const auto died = read_stamp(folder.path() / kDiedFile);
  if (!run.started || run.timed_out || run.exit_code == 0 || !died) {
    throw Error(fmt::format("{}: the job with a dying rank ended with exit code {}{}; it said:\n{}{}",
                            contender.name, run.exit_code, run.timed_out ? " at the time limit" : "",
                            run.output, run.errors));
  }
  contender.gone_ms.add(gone - *died);
  std::optional<double> first_notice;
  for (int64_t rank = 0; rank < world; ++rank) {
    const auto notice = read_stamp(folder.path() / fmt::format("{}{}", kAskedFile, rank));
    if (notice && (!first_notice || *notice < *first_notice)) first_notice = notice;
  }
  if (first_notice) contender.notice_ms.add(*first_notice - *died);
}

double time_of(const std::string& what, const Command& command, std::chrono::seconds limit = kLongestJob) {
  const double start = now_ms();
  const auto run = capture_until_interrupted(command, launch::current_environment(), limit);
  const double end = now_ms();
  if (!run.ok())
    throw Error(fmt::format("{} failed with exit code {}:\n{}", what, run.exit_code, run.errors));
  return end - start;
}

std::vector<Launcher> contenders(const LauncherBenchOptions& options, const fs::path& self,
                                 const fs::path& logs) {
  const std::string world = std::to_string(options.world);
  std::vector<Launcher> all = {
      {.name = "lockstep run",
       .start = {self.string(), "run", "--nproc-per-node", world, "--log-dir", logs.string(), "--"}}};
  if (options.peers.empty()) return all;
  if (options.peers != "mpirun") {
    throw UsageError(
        fmt::format("lockstep bench launcher: --peers {}: no such peer; hint: mpirun", options.peers));
  }
  Command mpirun = {"mpirun", "--oversubscribe", "-n", world};
  if (geteuid() == 0) mpirun.insert(mpirun.begin() + 1, "--allow-run-as-root");
  all.push_back({.name = "mpirun", .start = std::move(mpirun)});
  return all;
}

struct FrontDoor {
  Sample direct_ms, through_ms, added_ms;
};

/// Of the tree in which the command was built; an installed command has none.
fs::path front_door(const fs::path& self) {
  return self.parent_path().parent_path().parent_path().parent_path() / "lockstep";
}

void measure_front_door(FrontDoor& door, const fs::path& self, std::chrono::seconds limit = kLongestJob) {
  const fs::path script = front_door(self);
  door.direct_ms.add(time_of("lockstep --version", {self.string(), "--version"}));
  if (!fs::exists(script)) return;
  door.through_ms.add(time_of("./lockstep --version", {script.string(), "--version"}, limit));
}

nlohmann::json to_json(const Sample& sample) {
  if (sample.empty()) return nullptr;
  return {{"median", sample.median()}, {"low", sample.low()}, {"high", sample.high()}};
}

void print(const LauncherBenchOptions& options, const std::vector<Launcher>& all, const FrontDoor& door) {
  fmt::print(
      "{} ranks, one of which dies of SIGKILL; {} rounds, alternated; milliseconds: median (lowest to "
      "highest)\n\n",
      options.world, options.rounds);
  fmt::print("{:<14} {:<28} {:<28} {}\n", "launcher", "others asked to stop after", "all gone after",
             "an empty job takes");
  for (const auto& contender : all) {
    fmt::print("{:<14} {:<28} {:<28} {}\n", contender.name, contender.notice_ms.text(),
               contender.gone_ms.text(), contender.empty_job_ms.text());
  }
  if (all.size() > 1) {
    fmt::print("{:<14} {:<28.1f} {:<28.1f} {:.1f}\n", "ratio",
               all[1].notice_ms.empty() ? 0.0 : all[1].notice_ms.median() / all[0].notice_ms.median(),
               all[1].gone_ms.median() / all[0].gone_ms.median(),
               all[1].empty_job_ms.median() / all[0].empty_job_ms.median());
  }
  fmt::print("\nlockstep --version    {}\n./lockstep --version  {}\n", door.direct_ms.text(),
             door.through_ms.text());
  if (!door.through_ms.empty()) {
    fmt::print("the front door adds   {:.2f} ms (median minus median)\n",
               door.through_ms.median() - door.direct_ms.median());
  }
}

int bench_launcher(const LauncherBenchOptions& options) {
  const fs::path self = fs::read_symlink("/proc/self/exe");
  const TemporaryFolder logs;
  auto all = contenders(options, self, logs.path());
  FrontDoor door;
  if (fs::exists(front_door(self)))
    fmt::print(stderr, "lockstep bench launcher: the front door first builds what has changed\n");
  measure_front_door(door, self, std::chrono::minutes(20));
  door = {};
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (auto& contender : all) {
      measure_death(contender, self, options.world);
      contender.empty_job_ms.add(time_of(contender.name, joined(contender.start, {"true"})));
    }
    measure_front_door(door, self);
  }
  if (options.json.prints_text()) print(options, all, door);
  auto rows = nlohmann::json::array();
  for (const auto& contender : all) {
    rows.push_back({{"launcher", contender.name},
                    {"world", options.world},
                    {"rounds", options.rounds},
                    {"notice_ms", to_json(contender.notice_ms)},
                    {"gone_ms", to_json(contender.gone_ms)},
                    {"empty_job_ms", to_json(contender.empty_job_ms)}});
  }
  options.json.write({{"launchers", std::move(rows)},
                      {"command_ms", to_json(door.direct_ms)},
                      {"front_door_ms", to_json(door.through_ms)}});
  return 0;
}

}  // namespace

Action define_bench_launcher(Flags flags) {
  const auto options = std::make_shared<LauncherBenchOptions>();
  flags.number("--world", options->world, 2, 64, "Ranks");
  flags.number("--rounds", options->rounds, 1, 1000, "Rounds, alternated between the launchers");
  flags.text("--peers", options->peers, "Measure this launcher too", "mpirun");
  options->json.add_to(flags);
  return [options](const Invocation&) { return until_interrupted([&] { return bench_launcher(*options); }); };
}

}  // namespace lockstep::cli
