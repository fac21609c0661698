#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/bench_pipeline_report.h"
#include "cli/bench_pipeline_trace.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "lockstep/error.h"
#include "transport/engines.h"

namespace lockstep::cli {

namespace {

struct PipelineBenchOptions {
  std::string schedules = "naive,gpipe,1f1b,interleaved";
  PipelineOptions shape = {.stages = 2, .microbatches = 8};
  std::string model = "mlp:1024x16";
  int64_t batch = 512;
  std::string sleep;
  std::string engine = "shm";
  std::string peers;
  int64_t rounds = 7;
  int64_t steps = 0;
  std::string trace;
  JsonOutput json;
};

PipelineBench request_of(const PipelineBenchOptions& options) {
  constexpr int64_t kMostStages = 64;
  if (options.shape.stages > kMostStages) {
    throw UsageError(
        fmt::format("--stages {}: each is a process here; hint: at most {}, or lockstep "
                    "simulate pipeline",
                    options.shape.stages, kMostStages));
  }
  const auto models = parse_mlps(options.model, std::to_string(options.batch));
  if (models.size() != 1) throw UsageError(fmt::format("--model '{}': one model at a time", options.model));
  PipelineBench bench = {.stages = options.shape.stages,
                         .microbatches = options.shape.microbatches,
                         .engine = options.engine,
                         .rows = parse_pipeline_rows(options.schedules, options.shape),
                         .model = models.front(),
                         .sleep_ms = parse_sleep(options.sleep)};
  // Stages that sleep hand on next to nothing.
  if (bench.sleeps()) bench.model = {.dim = 1, .depth = 1, .batch = bench.microbatches};
  return bench;
}

void check_peers(const PipelineBenchOptions& options, const PipelineBench& bench) {
  if (options.peers.empty()) return;
  if (options.peers != "pytorch") {
    throw UsageError(fmt::format("--peers '{}': there is no such peer; hint: pytorch", options.peers));
  }
  if (bench.sleeps()) throw UsageError("--peers pytorch: takes no --sleep; hint: --model mlp:128x16");
}

void write_trace(const std::string& file, PipelineSystems& systems, const PipelineBench& bench,
                 const std::vector<PipelineResult>& results) {
  std::vector<TracedStep> steps;
  for (size_t row = 0; row < bench.rows.size(); ++row) {
    steps.push_back({.plan = bench.plan_of(bench.rows[row]),
                     .predicted = results[row].measured.back().predicted,
                     .run = systems.spans(row)});
  }
  write_json("--trace", file, pipeline_trace(steps));
}

int bench_pipeline(const PipelineBenchOptions& options) {
  const PipelineBench bench = request_of(options);
  check_peers(options, bench);
  transport::require_engine(bench.engine, "--engine");
  const bool with_pytorch = !options.peers.empty();
  require_possible(bench, with_pytorch ? 1 : 0);
  if (!options.trace.empty()) check_writable("--trace", options.trace);
  PipelineSystems systems(bench, with_pytorch, std::filesystem::read_symlink("/proc/self/exe").parent_path());
  const BenchSettings settings = systems.settings();
  const auto results = measure_pipeline(systems, bench, options.rounds, options.steps);
  const nlohmann::json document = pipeline_document(bench, settings, results);
  if (options.json.prints_text()) print_pipeline(document);
  options.json.write(document);
  if (!options.trace.empty()) write_trace(options.trace, systems, bench, results);
  return 0;
}

}  // namespace

Action define_bench_pipeline(Flags flags) {
  const auto options = std::make_shared<PipelineBenchOptions>();
  flags.text("--schedules", options->schedules, "Which: naive, gpipe, 1f1b, interleaved, or all", "LIST");
  options->shape.add_to(flags);
  flags.text("--model", options->model, "The model that is cut: mlp:WIDTHxLAYERS", "NAME");
  flags.number("--batch", options->batch, 1, 1'000'000, "Samples of a step");
  flags.text(
      "--sleep", options->sleep,
      "Instead of --model and --batch: stages that sleep for F, I and W milliseconds, so that ranks need no "
      "core",
      "F,I,W");
  flags.choice("--engine", options->engine, {"shm", "gloo"}, "Lockstep's engine");
  flags.text("--peers", options->peers, "Measure this too: pytorch (a plain 1F1B loop on Gloo)", "LIST");
  flags.number("--rounds", options->rounds, 1, 1000, "Rounds; in each, every schedule is timed once");
  flags.number("--steps", options->steps, 0, 100'000,
               "Steps a round; 0: half a second of the slowest schedule");
  flags.text("--trace", options->trace,
             "Write a step of each schedule: plan, prediction and run, for ui.perfetto.dev", "FILE");
  options->json.add_to(flags);
  return [options](const Invocation&) { return until_interrupted([&] { return bench_pipeline(*options); }); };
}

}  // namespace lockstep::cli
