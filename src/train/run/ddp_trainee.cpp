#include "train/run/ddp_trainee.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <mutex>
#include <optional>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/pipeline/microbatches.h"
#include "lockstep/train/optim/clip_grad_norm.h"
#include "parallel/default_generator.h"
#include "parallel/seed.h"
#include "train/run/weights.h"

namespace lockstep::train {

namespace {

class DdpTrainee : public Trainee {
 public:
  DdpTrainee(const Run& run, const Task& task, const Communicator& comm)
      : task_(task),
        model_(task.make_model(static_cast<uint64_t>(run.settings.seed))),
        ddp_(model_, comm),
        parameters_(ddp_.parameters()),
        weights_(named_weights(*model_)),
        seed_(static_cast<uint64_t>(run.settings.seed)),
        microbatches_(static_cast<int>(run.microbatches())),
        rank_(comm.rank()),
        world_size_(comm.world_size()) {}

  int data_rank() const override { return rank_; }
  int data_ranks() const override { return world_size_; }

  std::optional<double> step(const Batch& batch, int64_t step) override {
    const auto inputs = split_into_microbatches(batch.inputs, microbatches_);
    const auto targets = split_into_microbatches(batch.targets, microbatches_);
    const parallel::KeepDefaultGenerator keep;
    double sum = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      seed_dropout(step, i);
      const auto run = [&] { sum += backward(inputs[i], targets[i], static_cast<double>(inputs.size())); };
      if (i + 1 < inputs.size()) {
        const NoSync alone = ddp_.no_sync();
        run();
      } else {
        run();
      }
    }
    return sum / static_cast<double>(inputs.size());
  }

  double clip(double max_norm) override {
    return clip_grad_norm_(parameters_, max_norm > 0 ? max_norm : std::numeric_limits<double>::max());
  }

  std::optional<Evaluation> evaluate(const Batch& batch) override {
    const at::NoGradGuard no_grad;
    model_->eval();
    const auto output = model_->forward(batch.inputs);
    model_->train();
    return Evaluation{.loss = task_.loss(output, batch.targets).item<double>(),
                      .score = task_.score(output, batch.targets)};
  }

  double exposed_ms() const override { return ddp_.logging_data().exposed_us / 1000; }
  const Weights& weights() const override { return weights_; }
  int files() const override { return 1; }
  std::optional<int> own_file() const override { return rank_ == 0 ? std::optional(0) : std::nullopt; }

 private:
  /// Adds the gradients of one of `of` micro-batches; its loss.
  double backward(const at::Tensor& inputs, const at::Tensor& targets, double of) {
    const auto loss = task_.loss(ddp_.forward(inputs), targets);
    (of > 1 ? loss / of : loss).backward();
    return loss.item<double>();
  }

  /// What is dropped is a function of (seed, step, micro-batch, rank) alone: no stream runs on from step to
  /// step.
  void seed_dropout(int64_t step, size_t microbatch) {
    uint64_t seed = seed_;
    for (const uint64_t index :
         {static_cast<uint64_t>(step), uint64_t{microbatch}, static_cast<uint64_t>(rank_)}) {
      seed = parallel::derive_seed(seed, parallel::Stream::kDropout, index);
    }
    auto generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }

  const Task& task_;
  torch::nn::Sequential model_;
  DistributedDataParallel<torch::nn::SequentialImpl> ddp_;
  const std::vector<at::Tensor> parameters_;
  const Weights weights_;
  const uint64_t seed_;
  const int microbatches_;
  const int rank_;
  const int world_size_;
};

}  // namespace

std::unique_ptr<Trainee> make_ddp_trainee(const Run& run, const Task& task, const Communicator& comm) {
  return std::make_unique<DdpTrainee>(run, task, comm);
}

}  // namespace lockstep::train
