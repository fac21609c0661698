#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/bench_train_report.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct TrainBenchOptions {
  TrainBench bench;
  std::string peers = "none";
  int64_t rounds = 7;
  int64_t steps = 50;
  JsonOutput json;
};

/// Every round of those that save must have as many checkpoints.
void check_steps(const TrainBenchOptions& options) {
  const int64_t every = options.bench.checkpoint_every;
  if (every == 0 || options.steps % every == 0) return;
  throw UsageError(
      fmt::format("--steps {}: not a multiple of --checkpoint-every, {}; hint: --steps {}, or "
                  "--checkpoint-every 0 to save nothing",
                  options.steps, every, (options.steps / every + 1) * every));
}

int bench_train(TrainBenchOptions& options) {
  options.bench.with_pytorch = options.peers == "pytorch";
  check_steps(options);
  TrainSystems systems(options.bench, std::filesystem::read_symlink("/proc/self/exe").parent_path());
  const BenchSettings settings = systems.settings();
  const auto results = measure_train(systems, options.bench, options.rounds, options.steps);
  const nlohmann::json document = train_document(options.bench, systems, settings, options.steps, results);
  if (options.json.prints_text()) print_train(document);
  options.json.write(document);
  return 0;
}

}  // namespace

Action define_bench_train(Flags flags) {
  const auto options = std::make_shared<TrainBenchOptions>();
  TrainBench& bench = options->bench;
  flags.number("--world", bench.world, 1, 64, "Ranks");
  flags.number("--batch", bench.batch, 1, 20'000, "Sequences of a step, of all ranks together");
  flags.text("--config", bench.config_file, "The model's shape (default: as config/config.json)", "FILE");
  flags.choice(
      "--peers", options->peers, {"pytorch", "none"},
      "Measure this too: pytorch (the same model in its DDP on Gloo, on the same batches, which both "
      "make before anything is timed; neither writes logs)");
  flags.number("--rounds", options->rounds, 1, 1000, "Rounds; in each, every system is timed once");
  flags.number("--steps", options->steps, 1, 100'000, "Steps a round");
  flags.number("--checkpoint-every", bench.checkpoint_every, 0, 100'000,
               "Measure Lockstep also while it saves every N steps; 0: not");
  options->json.add_to(flags);
  return [options](const Invocation&) { return until_interrupted([&] { return bench_train(*options); }); };
}

}  // namespace lockstep::cli
