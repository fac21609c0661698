#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/bench_settings.h"
#include "cli/machine.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/train_options.h"
#include "launch/launcher.h"
#include "lockstep/error.h"
#include "transport/engines.h"

namespace lockstep::cli {

namespace {

using train::RunRequest;

/// The next free runs/DATA-N.
std::filesystem::path new_folder(const std::string& data) {
  const std::string name = std::filesystem::path(data).stem().string();
  for (int number = 1;; ++number) {
    auto folder = std::filesystem::path("runs") / fmt::format("{}-{}", name.empty() ? "run" : name, number);
    if (!std::filesystem::exists(folder)) return folder;
  }
}

/// The most ranks, up to `cores`, among which a step's samples divide evenly.
int64_t fitting_ranks(const train::TrainSettings& settings, int64_t cores) {
  if (settings.parallel == "none") return 1;
  if (settings.parallel == "pipeline") return std::min<int64_t>(cores, 2);
  const int64_t shares = settings.batch / std::max<int64_t>(1, settings.accumulate);
  while (cores > 1 && shares % cores != 0) --cores;
  return cores;
}

std::string ranks_of(const TrainFlags& flags) {
  if (!flags.nproc_per_node.empty() && flags.nproc_per_node != "auto") return flags.nproc_per_node;
  if (flags.request.resume) {
    const auto stored = train::read_run(flags.request.folder).settings;
    const auto settled = settle(flags.request.given, stored);
    if (settled.parallel == stored.parallel) return fmt::format("{}", stored.world_size);
    return fmt::format("{}", fitting_ranks(settled, launch::usable_cores()));
  }
  return fmt::format("{}", fitting_ranks(flags.request.given.values, launch::usable_cores()));
}

std::vector<std::string> rank_program(const TrainFlags& flags) {
  const auto commands = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::string> words = {find_torch_command(commands).string(), "train-rank", "--run-dir",
                                    flags.request.folder.string()};
  if (flags.request.resume) words.emplace_back("--resume");
  if (flags.inexact) words.emplace_back("--inexact");
  if (flags.tensorboard) words.emplace_back("--tensorboard");
  return words;
}

}  // namespace

int launch_training(const TrainFlags& given) {
  TrainFlags flags = given;
  RunRequest& request = flags.request;
  if (request.resume && request.folder.empty()) {
    throw UsageError("lockstep train: --resume of which run?; hint: name its folder by --run-dir");
  }
  if (request.folder.empty()) request.folder = new_folder(request.given.values.data);
  auto environment = launch::current_environment();
  if (!flags.engine.empty()) transport::require_engine(flags.engine, "--engine");
  launch::Job job = launch::resolve_job({.nproc_per_node = ranks_of(flags),
                                         .max_restarts = flags.max_restarts,
                                         .grace = flags.grace,
                                         .log_dir = (request.folder / "logs").string(),
                                         .tee = "0",
                                         .engine = flags.engine,
                                         .program = rank_program(flags)},
                                        environment, look_at_machine(environment));
  job.stopped_codes = {kExitStopped, kExitInterrupted};
  request.given.values.world_size = static_cast<int64_t>(job.ranks.size());
  request.given.names.insert("world_size");
  prepare_run(request, environment);
  // A copy of our own output that the ranks inherit.
  environment[kOutVariable] = fmt::format("{}", dup(STDOUT_FILENO));
  if (flags.trace) environment["LOCKSTEP_TRACE"] = (request.folder / "trace").string();
  return launch::launch_job(
      job, environment,
      {.colour_stdout = use_colour(STDOUT_FILENO), .colour_stderr = use_colour(STDERR_FILENO)});
}

}  // namespace lockstep::cli
