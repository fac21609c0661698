#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/bench_ddp_report.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "lockstep/error.h"
#include "transport/engines.h"

namespace lockstep::cli {

namespace {

struct DdpBenchOptions {
  DdpBench bench;
  std::string models = "mlp:128x16";
  std::string batches = "32";
  std::string peers;
  int64_t rounds = 7;
  int64_t steps = 0;
  JsonOutput json;
};

int bench_ddp(DdpBenchOptions& options) {
  DdpBench& bench = options.bench;
  bench.models = parse_mlps(options.models, options.batches);
  const auto peers = parse_ddp_peers(options.peers);
  transport::require_engine(bench.engine, "--engine");
  require_ddp_memory(bench, peers.size() + 1);
  DdpSystems systems(bench, peers, std::filesystem::read_symlink("/proc/self/exe").parent_path());
  const BenchSettings settings = systems.settings();
  std::vector<DdpModelResult> results;
  for (size_t model = 0; model < bench.models.size(); ++model)
    results.push_back(measure_ddp(systems, bench, model, options.rounds, options.steps));
  const nlohmann::json document = ddp_document(bench, settings, results);
  if (options.json.prints_text()) print_ddp(document);
  options.json.write(document);
  return 0;
}

}  // namespace

Action define_bench_ddp(Flags flags) {
  const auto options = std::make_shared<DdpBenchOptions>();
  DdpBench& bench_of = options->bench;
  flags.number("--world", bench_of.world, 1, 64, "Ranks");
  flags.text("--model", options->models, "Models: mlp:WIDTHxLAYERS", "LIST");
  flags.text("--batch", options->batches, "Samples of each rank: one number, or one for each model", "LIST");
  flags.choice("--optimizer", bench_of.optimizer, {"adam", "sgd", "torch-adam"},
               "Lockstep's Adam, its SGD with momentum 0.9, or LibTorch's Adam; peers use their own");
  flags.choice("--engine", bench_of.engine, {"shm", "gloo"}, "Lockstep's engine");
  flags.text("--peers", options->peers,
             "Measure these too: pytorch (its DDP on Gloo), libtorch (one process)", "LIST");
  flags.number("--rounds", options->rounds, 1, 1000, "Rounds; in each, every system is timed once");
  flags.number("--steps", options->steps, 0, 100'000, "Steps a round; 0: a third of a second of Lockstep's");
  flags.number("--lr", bench_of.lr, 1e-12, 1000.0, "Learning rate");
  flags.number("--bucket-cap-mib", bench_of.bucket_cap_mib, 0.0001, 1e6,
               "Size of a bucket of gradients, in MiB");
  flags.choice("--overlap", bench_of.overlap, {"auto", "on", "off"},
               "Whether Lockstep sends gradients while backward goes on");
  options->json.add_to(flags);
  return [options](const Invocation&) { return until_interrupted([&] { return bench_ddp(*options); }); };
}

}  // namespace lockstep::cli
