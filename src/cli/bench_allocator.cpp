#include "cli/bench_allocator.h"

#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/optim/adam.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/bench_constants.h"
#include "cli/sample.h"
#include "cli/torch_verbs.h"
#include "lockstep/comms/shared_allocator.h"
#include "lockstep/comms/shared_memory.h"
#include "lockstep/error.h"
#include "lockstep/train/models/full_mlp.h"

namespace lockstep::cli {

namespace {

int64_t page_faults() {
  rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_minflt;
}

/// The same training, with one of the allocators.
class Contender {
 public:
  Contender(std::string name, bool shared, const BenchAllocatorOptions& options, const at::Tensor& input)
      : name_(std::move(name)), shared_(shared), input_(input) {
    use_shared_allocator(shared_);
    model_ = FullMLP(options.dim, options.depth, kBenchSeed);
    optimizer_ = std::make_unique<torch::optim::Adam>(model_->parameters(),
                                                      torch::optim::AdamOptions(kBenchLearningRate));
  }

  void round(int64_t steps) {
    use_shared_allocator(shared_);
    const int64_t faults = page_faults();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) step();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    milliseconds_.add(taken.count() / static_cast<double>(steps));
    faults_.add(static_cast<double>(page_faults() - faults) / static_cast<double>(steps));
  }

  /// The loss that the step began with.
  double step() {
    optimizer_->zero_grad();
    const at::Tensor loss = model_->forward(input_).square().mean();
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

  double first_steps() {
    use_shared_allocator(shared_);
    double loss = 0;
    for (int i = 0; i < 3; ++i) loss = step();
    return loss;
  }

  const std::string& name() const { return name_; }
  const Sample& milliseconds() const { return milliseconds_; }
  const Sample& faults() const { return faults_; }

 private:
  const std::string name_;
  const bool shared_;
  const at::Tensor input_;
  FullMLP model_ = nullptr;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  Sample milliseconds_;
  Sample faults_;
};

nlohmann::json to_json(const Sample& sample) {
  return {{"median", sample.median()}, {"low", sample.low()}, {"high", sample.high()}};
}

}  // namespace

int run_bench_allocator(const BenchAllocatorOptions& options, const Invocation&) {
  const at::Tensor input = at::randn({options.batch, options.dim});
  Contender own("LibTorch's own", false, options, input);
  Contender shared("shared", true, options, input);
  if (const double a = own.first_steps(), b = shared.first_steps(); a != b) {
    throw Error(fmt::format("bench allocator: the loss after the same steps is {} and {}", a, b));
  }
  for (int64_t i = 0; i < options.rounds; ++i) {
    own.round(options.steps);
    shared.round(options.steps);
  }
  use_shared_allocator(false);
  const double ratio = own.milliseconds().median() / shared.milliseconds().median();
  const SharedMemoryUse use = shared_memory_use();
  if (options.json.prints_text()) {
    const int64_t parameters = options.depth * options.dim * (options.dim + 1);
    fmt::print(
        "an Adam step of FullMLP({}, {}), {:.1f} million parameters, batch {}; {} rounds of {} steps, "
        "alternated,\nlosses equal bit for bit; median (lowest to highest)\n\n",
        options.dim, options.depth, static_cast<double>(parameters) / 1e6, options.batch, options.rounds,
        options.steps);
    fmt::print("{:<16} {:<28} {}\n", "allocator", "ms a step", "page faults a step");
    for (const Contender* contender : {&own, &shared}) {
      fmt::print("{:<16} {:<28} {}\n", contender->name(), contender->milliseconds().text(),
                 contender->faults().text());
    }
    fmt::print(
        "\nLibTorch's own takes {:.2f} times as long; shared: {:.1f} MiB at most in use, {:.1f} MiB held\n",
        ratio, static_cast<double>(use.peak_used_bytes) / (1 << 20),
        static_cast<double>(use.held_bytes) / (1 << 20));
  }
  auto rows = nlohmann::json::array();
  for (const Contender* contender : {&own, &shared}) {
    rows.push_back({{"allocator", contender->name()},
                    {"ms_per_step", to_json(contender->milliseconds())},
                    {"page_faults_per_step", to_json(contender->faults())}});
  }
  options.json.write({{"dim", options.dim},
                      {"depth", options.depth},
                      {"batch", options.batch},
                      {"rounds", options.rounds},
                      {"steps", options.steps},
                      {"rows", std::move(rows)},
                      {"ratio", ratio},
                      {"peak_used_bytes", use.peak_used_bytes},
                      {"held_bytes", use.held_bytes}});
  return 0;
}

}  // namespace lockstep::cli
