#include "cli/bench_train_rank.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/asked_job.h"
#include "cli/bench_hello.h"
#include "cli/bench_numbers.h"
#include "cli/bench_train_request.h"
#include "cli/torch_verbs.h"
#include "lockstep/comms/init.h"
#include "lockstep/comms/shared_allocator.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"
#include "lockstep/train/data/distributed_sampler.h"
#include "train/run/optimizer.h"
#include "train/run/saver.h"
#include "train/run/trainee.h"

namespace lockstep::cli {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// A rank of a run, of the pieces of which `lockstep train` makes one.
class TokenTraining {
 public:
  TokenTraining(const train::Run& run, const Communicator& comm)
      : run_(run),
        task_(make_task(run, {})),
        saver_(run, comm, task_->fingerprint()),
        trainee_(make_trainee(run, *task_, comm, 0)),
        optimizer_(make_optimizer(trainee_->weights(), run.settings)) {
    DistributedSampler sampler(static_cast<size_t>(task_->train_size()),
                               {.rank = trainee_->data_rank(),
                                .world_size = trainee_->data_ranks(),
                                .drop_last = true,
                                .seed = static_cast<uint64_t>(run.settings.seed)});
    const auto share = static_cast<size_t>(run.settings.batch / trainee_->data_ranks());
    for (int64_t i = 0; i < kTrainBatches; ++i)
      batches_.push_back(task_->train_batch(sampler.next(share).value()));
  }

  /// What a step of `lockstep train` does but for telling of it, at the highest learning rate throughout;
  /// this rank's loss.
  double step() {
    const train::Batch& batch = batches_[static_cast<size_t>(steps_ % kTrainBatches)];
    optimizer_->zero_grad();
    loss_ = trainee_->step(batch, steps_).value();
    trainee_->clip(run_.settings.clip);
    optimizer_->step();
    ++steps_;
    return loss_;
  }

  void save() { saver_.save(steps_, loss_, *trainee_, *optimizer_); }

  /// The same on every rank as long as their weights are.
  double sum_of_weights() const {
    double sum = 0;
    for (const auto& [name, weight] : trainee_->weights())
      sum += weight.tensor.detach().to(at::kDouble).sum().item<double>();
    return sum;
  }

  const train::Weights& weights() const { return trainee_->weights(); }
  const std::vector<train::Batch>& batches() const { return batches_; }

 private:
  const train::Run& run_;
  std::unique_ptr<train::Task> task_;
  train::Saver saver_;
  std::unique_ptr<train::Trainee> trainee_;
  std::unique_ptr<FusedAdamW> optimizer_;
  std::vector<train::Batch> batches_;
  int64_t steps_ = 0;
  double loss_ = 0;
};

/// Answers the benchmark's questions.
class TrainRank {
 public:
  explicit TrainRank(const std::filesystem::path& folder)
      : folder_(folder),
        comm_(init_distributed()),
        run_(train::read_run(folder / kTrainRunFolder)),
        training_(run_, comm_) {}

  Json answer(const Json& question) {
    const std::string what = question["do"];
    if (what == "hello") return bench_hello();
    if (what == "build") return build(question["writes_files"]);
    if (what == "check") return check(question["steps"]);
    if (what == "time") return time(question["warm_up"], question["steps"], question["checkpoint_every"]);
    throw Error(fmt::format("bench-train-rank: asked to do '{}'", what));
  }

 private:
  /// What a peer must know to do the same: names and shapes of the weights, in the file's order.
  Json build(bool writes_files) {
    auto names = Json::array();
    std::vector<at::Tensor> weights;
    for (const auto& [name, weight] : training_.weights()) {
      if (!weight.tensor.requires_grad()) continue;
      names.push_back({name, weight.tensor.sizes().vec()});
      weights.push_back(weight.tensor);
    }
    if (writes_files) {
      std::vector<at::Tensor> inputs, targets;
      for (const auto& batch : training_.batches()) {
        inputs.push_back(batch.inputs.to(at::kFloat));
        targets.push_back(batch.targets.to(at::kFloat));
      }
      write_numbers(folder_ / train_inputs_file(comm_.rank()), inputs);
      write_numbers(folder_ / train_targets_file(comm_.rank()), targets);
      if (comm_.rank() == 0) write_numbers(folder_ / kTrainWeightsFile, weights);
    }
    return {{"weights", names}, {"engine", comm_.engine()}};
  }

  Json check(int64_t steps) {
    auto losses = Json::array();
    for (int64_t i = 0; i < steps; ++i) losses.push_back(training_.step());
    return {{"losses", losses}, {"weights", training_.sum_of_weights()}};
  }

  /// `every` of 0 saves nothing.
  Json time(int64_t warm_up, int64_t steps, int64_t every) {
    comm_.barrier();
    for (int64_t i = 0; i < warm_up; ++i) training_.step();
    comm_.barrier();
    double saving_ms = 0;
    const auto begin = Clock::now();
    for (int64_t i = 1; i <= steps; ++i) {
      training_.step();
      if (every == 0 || i % every != 0) continue;
      const auto saving = Clock::now();
      training_.save();
      saving_ms += milliseconds_since(saving);
    }
    return {{"round_ms", milliseconds_since(begin)}, {"saving_ms", saving_ms}};
  }

  const std::filesystem::path folder_;
  Communicator comm_;
  const train::Run run_;
  TokenTraining training_;
};

}  // namespace

int run_bench_train_rank(const TrainBenchRankOptions& options, const Invocation&) {
  AskedRank pipes(options.folder, "lockstep", identify().rank);
  TrainRank rank(options.folder);
  while (const auto question = pipes.next()) pipes.answer(rank.answer(*question));
  return 0;
}

}  // namespace lockstep::cli
