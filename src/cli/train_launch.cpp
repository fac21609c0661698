#include <fcntl.h>
#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/bench_settings.h"
#include "cli/machine.h"
#include "cli/size.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/train_options.h"
#include "launch/launcher.h"
#include "lockstep/error.h"
#include "train/run/resume.h"
#include "transport/engines.h"

namespace lockstep::cli {

namespace {

using train::RunRequest;

/// Makes the next free runs/DATA-N, so that no other command takes it, for a request that names no folder;
/// removes it again if nothing came into it.
class Claim {
 public:
  explicit Claim(RunRequest& request) {
    if (!request.folder.empty()) return;
    const std::string name = std::filesystem::path(request.given.values.data).stem().string();
    std::error_code error;
    made_runs_ = std::filesystem::create_directory("runs", error);
    for (int number = 1; folder_.empty() && !error; ++number) {
      request.folder =
          std::filesystem::path("runs") / fmt::format("{}-{}", name.empty() ? "run" : name, number);
      if (std::filesystem::exists(request.folder)) continue;
      if (std::filesystem::create_directory(request.folder, error)) folder_ = request.folder;
    }
    if (error) {
      throw UsageError(
          fmt::format("--run-dir: cannot make a folder in runs: {}; hint: name a folder that you may write",
                      error.message()));
    }
  }
  ~Claim() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove(folder_, ignored);  // only if it is empty
    if (made_runs_) std::filesystem::remove("runs", ignored);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  std::filesystem::path folder_;
  bool made_runs_ = false;
};

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

/// What decided bits so far decides them again, unless the user says otherwise, and as far as this CPU can.
void reuse(const train::Conditions& then, launch::Environment& environment) {
  const auto set = [&](const char* variable, const char* condition, const auto& fits) {
    const auto found = then.find(condition);
    if (found == then.end() || found->second.empty() || !fits(found->second)) return;
    std::string& value = environment[variable];
    if (value.empty()) value = found->second;
  };
  const std::string best = launch::best_coretype(launch::detect_cpu());
  const auto any = [](const std::string&) { return true; };
  set("OMP_NUM_THREADS", "threads", any);
  set("OPENBLAS_NUM_THREADS", "openblas_threads", any);
  set("OPENBLAS_CORETYPE", "openblas_coretype", [&](const std::string& core) {
    return strcasecmp(core.c_str(), best.c_str()) == 0 ||
           launch::kernel_tier(core) < launch::kernel_tier(best);
  });
}

/// The conditions that are known before a rank starts: a refusal by one of them changes nothing at all.
train::Conditions known_conditions(const train::Run& run, const launch::Job& job,
                                   const launch::Environment& inherited) {
  const auto environment = rank_environment(job, job.ranks.front(), inherited, 0, 0);
  const auto engine = environment.find("LOCKSTEP_ENGINE");
  return {{"world_size", fmt::format("{}", run.settings.world_size)},
          {"parallel", run.settings.parallel},
          {"schedule", run.settings.parallel == "pipeline" ? run.settings.schedule : ""},
          {"data", data_condition(run.settings, inherited)},
          {"threads", environment.at("OMP_NUM_THREADS")},
          {"engine", engine == environment.end() || engine->second.empty() ? "shm" : engine->second}};
}

}  // namespace

int launch_training(const TrainFlags& given) {
  TrainFlags flags = given;
  RunRequest& request = flags.request;
  if (request.resume && request.folder.empty()) {
    throw UsageError("lockstep train: --resume of which run?; hint: name its folder by --run-dir");
  }
  const Claim claim(request);
  auto environment = launch::current_environment();
  train::RunLock lock;
  train::Resumption from;
  if (request.resume) {
    from = find_resumption(lock_run(request.folder, lock));
    reuse(from.state.conditions, environment);
  }
  const std::string engine = chosen_engine(request, environment);
  if (!engine.empty()) transport::require_engine(engine, "--engine");
  launch::Job job = launch::resolve_job({.nproc_per_node = ranks_of(flags),
                                         .max_restarts = flags.max_restarts,
                                         .grace = flags.grace,
                                         .log_dir = (request.folder / "logs").string(),
                                         .tee = "0",
                                         .engine = engine,
                                         .program = rank_program(flags)},
                                        environment, look_at_machine(environment));
  job.stopped_codes = {kExitStopped, kExitInterrupted, kExitLostOutput};
  request.given.values.world_size = static_cast<int64_t>(job.ranks.size());
  request.given.names.insert("world_size");
  say_if_large("train",
               request.resume ? train::read_run(request.folder).settings.data : request.given.values.data);
  const train::Run run = prepare_run(request, environment, lock);
  if (from.checkpoint && run.settings.steps > 0)
    train::require_steps(run.settings.steps, from.checkpoint->step);
  if (from.checkpoint && !flags.inexact) {
    train::require_same_bits(
        from.checkpoint->step,
        train::differences(known_conditions(run, job, environment), from.state.conditions));
  }
  job.command.insert(job.command.end(), {"--settings", to_json(run.settings)});
  // A copy of our own output that the ranks inherit.
  environment[kOutVariable] = fmt::format("{}", dup(STDOUT_FILENO));
  if (flags.trace) environment["LOCKSTEP_TRACE"] = (request.folder / "trace").string();
  const int code = launch::launch_job(
      job, environment,
      {.colour_stdout = use_colour(STDOUT_FILENO), .colour_stderr = use_colour(STDERR_FILENO)});
  if (code == kExitLostOutput) throw Error(kLostOutput);  // in the keeper: the front has its exit code
  return code;
}

}  // namespace lockstep::cli
