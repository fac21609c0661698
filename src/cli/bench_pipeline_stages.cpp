#include "cli/bench_pipeline_stages.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <sys/prctl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <cmath>
#include <ctime>
#include <thread>

#include "cli/bench_constants.h"
#include "cli/bench_numbers.h"
#include "lockstep/parallel/pipeline/partition.h"
#include "lockstep/trace/writer.h"
#include "lockstep/train/models/full_mlp.h"
#include "parallel/seed.h"

namespace lockstep::cli {

namespace {

/// Until so long after now, on the clock. A core that has gone to sleep wakes up late, by a tenth of a
/// millisecond on virtual machines: for the last of it this thread stays awake, and lets others go first.
void sleep_for(double milliseconds) {
  constexpr int64_t kAwakeNs = 300'000;
  const int64_t deadline_ns = trace::now_ns() + std::llround(milliseconds * 1e6);
  if (const int64_t wake_ns = deadline_ns - kAwakeNs; wake_ns > trace::now_ns()) {
    prctl(PR_SET_TIMERSLACK, 1);  // of this thread; 50 us otherwise
    const timespec wake = {.tv_sec = wake_ns / 1'000'000'000, .tv_nsec = wake_ns % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr) != 0) {
    }
  }
  while (trace::now_ns() < deadline_ns) std::this_thread::yield();
}

/// Hands on its input, and the gradient, taking its time; nothing is learnt, however many stages there are.
class Sleep : public torch::autograd::Function<Sleep> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& /*weight*/, double forward_ms, double backward_ms) {
    sleep_for(forward_ms);
    context->saved_data["backward_ms"] = backward_ms;
    return input.view_as(input);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    sleep_for(context->saved_data["backward_ms"].toDouble());
    return {gradients[0], {}, {}, {}};
  }
};

class SleepingStage : public torch::nn::Module {
 public:
  SleepingStage(double forward_ms, double backward_ms)
      : forward_ms_(forward_ms),
        backward_ms_(backward_ms),
        weight_(register_parameter("weight", at::ones({1}))) {}
  at::Tensor forward(const at::Tensor& input) {
    return Sleep::apply(input, weight_, forward_ms_, backward_ms_);
  }

 private:
  const double forward_ms_, backward_ms_;
  at::Tensor weight_;
};

}  // namespace

std::vector<AnyModel> make_pipeline_stages(const PipelineBench& bench, const PipelineRow& row, int rank) {
  std::vector<AnyModel> stages;
  const auto chunks = static_cast<double>(row.chunks);
  if (bench.sleeps()) {
    for (int64_t chunk = 0; chunk < row.chunks; ++chunk) {
      stages.emplace_back(std::make_shared<SleepingStage>(bench.sleep_ms[0] / chunks,
                                                          (bench.sleep_ms[1] + bench.sleep_ms[2]) / chunks));
    }
    return stages;
  }
  const FullMLP model(bench.model.dim, bench.model.depth, kBenchSeed);
  // A layer and its ReLU stay together.
  Cuts cuts = cut_by_count(bench.model.depth, static_cast<int>(bench.stages * row.chunks));
  for (auto& cut : cuts) cut = cut == bench.model.depth ? 2 * cut - 1 : 2 * cut;
  for (int64_t chunk = 0; chunk < row.chunks; ++chunk) {
    stages.emplace_back(take_stage(torch::nn::Sequential(model->layers()), cuts,
                                   static_cast<int>(chunk * bench.stages) + rank));
  }
  return stages;
}

PipelineBatch make_pipeline_batch(const PipelineBench& bench) {
  auto generator =
      at::detail::createCPUGenerator(parallel::derive_seed(kBenchSeed, parallel::Stream::kBatches, 0));
  const auto draw = [&] { return at::randn({bench.model.batch, bench.model.dim}, generator); };
  at::Tensor input = draw(), target = draw();
  return {.input = std::move(input), .target = std::move(target)};
}

void write_pipeline_files(const std::filesystem::path& folder, const PipelineBench& bench) {
  const FullMLP model(bench.model.dim, bench.model.depth, kBenchSeed);
  write_numbers(folder / kPipelineWeightsFile, model->parameters());
  const PipelineBatch batch = make_pipeline_batch(bench);
  write_numbers(folder / kPipelineInputFile, {batch.input});
  write_numbers(folder / kPipelineTargetFile, {batch.target});
}

}  // namespace lockstep::cli
