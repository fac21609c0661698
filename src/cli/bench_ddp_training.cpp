#include "cli/bench_ddp_training.h"

#include <ATen/ops/mse_loss.h>

#include <chrono>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"

namespace lockstep::cli {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

class DataParallel : public DdpTraining {
 public:
  DataParallel(const DdpBench& bench, const FullMLP& model, const Communicator& comm)
      : comm_(comm), ddp_(model, comm, options_of(bench)) {
    optimizer_ = make_ddp_optimizer(bench.optimizer, bench.lr, ddp_.parameters(), /*stock=*/false);
  }

  std::vector<int64_t> bucket_bytes() const override {
    const DdpLoggingData log = ddp_.logging_data();
    return log.rebuilt_bucket_bytes.empty() ? log.bucket_bytes : log.rebuilt_bucket_bytes;
  }
  void meet() override { comm_.barrier(); }

 private:
  static DdpOptions options_of(const DdpBench& bench) {
    DdpOptions options = {.bucket_cap_mib = bench.bucket_cap_mib};
    if (bench.overlap != "auto") options.overlap = bench.overlap == "on";
    return options;
  }
  at::Tensor forward(const at::Tensor& input) override { return ddp_.forward(input); }
  double exposed_us() const override { return ddp_.logging_data().exposed_us; }
  std::vector<at::Tensor> parameters() const override { return ddp_.parameters(); }

  Communicator comm_;
  DistributedDataParallel<FullMLPImpl> ddp_;
};

class Single : public DdpTraining {
 public:
  Single(const DdpBench& bench, const FullMLP& model) : model_(model) {
    optimizer_ = make_ddp_optimizer(bench.optimizer, bench.lr, model_->parameters(), /*stock=*/true);
  }

 private:
  at::Tensor forward(const at::Tensor& input) override { return model_->forward(input); }
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }

  FullMLP model_;
};

}  // namespace

DdpStepTimes& DdpStepTimes::operator+=(const DdpStepTimes& other) {
  forward_us += other.forward_us;
  backward_us += other.backward_us;
  exposed_us += other.exposed_us;
  optimizer_us += other.optimizer_us;
  return *this;
}

at::Tensor DdpTraining::step(const DdpData& data, DdpStepTimes& times) {
  const int64_t batch = steps_++ % data.inputs.size(0);
  const at::Tensor input = data.inputs[batch], target = data.targets[batch];
  const auto begin = Clock::now();
  optimizer_.zero_grad();
  const auto zeroed = Clock::now();
  const at::Tensor loss = at::mse_loss(forward(input), target);
  const auto forwarded = Clock::now();
  loss.backward();
  const auto gone_back = Clock::now();
  optimizer_.step();
  const auto end = Clock::now();
  const double exposed = exposed_us();
  times += {.forward_us = microseconds(zeroed, forwarded),
            .backward_us = microseconds(forwarded, gone_back) - exposed,
            .exposed_us = exposed,
            .optimizer_us = microseconds(begin, zeroed) + microseconds(gone_back, end)};
  return loss;
}

double DdpTraining::sum_of_weights() const {
  double sum = 0;
  for (const auto& parameter : parameters()) sum += parameter.detach().to(at::kDouble).sum().item<double>();
  return sum;
}

std::unique_ptr<DdpTraining> make_data_parallel(const DdpBench& bench, const FullMLP& model,
                                                const Communicator& comm) {
  return std::make_unique<DataParallel>(bench, model, comm);
}

std::unique_ptr<DdpTraining> make_single(const DdpBench& bench, const FullMLP& model) {
  return std::make_unique<Single>(bench, model);
}

}  // namespace lockstep::cli
