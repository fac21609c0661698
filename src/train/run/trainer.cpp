#include "train/run/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "lockstep/error.h"
#include "lockstep/train/data/distributed_sampler.h"
#include "lockstep/train/optim/fused_adam.h"
#include "train/checkpoint/files.h"
#include "train/run/learning_rate.h"
#include "train/run/metrics.h"
#include "train/run/optimizer.h"
#include "train/run/rank_log.h"
#include "train/run/saver.h"
#include "train/run/tensorboard.h"
#include "train/run/trainee.h"

namespace lockstep::train {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void set_learning_rate(FusedAdamW& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options()).lr(lr);
  }
}

/// What the ranks tell each other after a step.
struct Told {
  double loss = 0;  ///< Mean over those that have one.
  int stop_signal = 0;
};

class Trainer {
 public:
  Trainer(const Run& run, Communicator comm, const TrainOptions& options, const TrainEvents& events)
      : run_(run),
        settings_(run.settings),
        comm_(std::move(comm)),
        options_(options),
        events_(events),
        task_(make_task(run, options.environment)),
        steps_per_epoch_(task_->train_size() / settings_.batch),
        steps_(total_steps()),
        saver_(run_, comm_, task_->fingerprint()) {}

  TrainResult run() {
    const Restored restored = options_.resume ? saver_.find() : Restored();
    if (!options_.inexact) require_same_bits(restored.step, restored.differences);
    require_steps(steps_, restored.step);
    trainee_ = make_trainee(run_, *task_, comm_, restored.step);
    optimizer_ = make_optimizer(trainee_->weights(), settings_);
    if (restored.step > 0) saver_.restore(*trainee_, *optimizer_);
    open_files(restored.step);
    tell_start(restored);
    result_.steps = steps_;
    result_.step = restored.step;
    result_.loss = result_.first_loss = restored.loss;
    saved_ = restored.step;
    train_from(restored.step);
    finish();
    return result_;
  }

 private:
  int64_t total_steps() const {
    if (steps_per_epoch_ < 1) {
      throw UsageError(fmt::format("--batch {}: the data has {} samples; hint: a smaller one",
                                   settings_.batch, task_->train_size()));
    }
    if (settings_.steps > 0) return settings_.steps;
    if (settings_.epochs > 0) return settings_.epochs * steps_per_epoch_;
    return task_->default_steps(settings_.batch);
  }

  /// From here on the run is accepted, and changes its folder.
  void open_files(int64_t last_step) {
    saver_.remove_leftovers();
    const auto logs = run_.folder / "logs" / fmt::format("rank_{}", comm_.rank());
    make_folders(logs);
    log_ = std::make_unique<RankLog>(logs / "train.log", last_step);
    if (comm_.rank() != 0) return;
    metrics_ = std::make_unique<MetricsFile>(run_.metrics(), last_step);
    if (options_.tensorboard) {
      tensorboard_ = std::make_unique<TensorBoardWriter>(run_.folder / "tensorboard", last_step);
    }
    if (options_.resume) save_settings(run_);  // last: metrics of steps to come again are cut away by now
  }

  void tell_start(const Restored& restored) const {
    TrainStart start = {.first_step = restored.step,
                        .steps = steps_,
                        .threads = at::get_num_threads(),
                        .unit = task_->unit(),
                        .entropy = task_->entropy(),
                        .notes = restored.notes};
    if (options_.resume && restored.step == 0) {
      start.notes.push_back("no checkpoint was saved yet: starting from step 1");
    }
    int64_t own = 0;
    for (const auto& [name, weight] : trainee_->weights()) own += weight.is_copy ? 0 : weight.tensor.numel();
    std::vector<int64_t> count = {trainee_->own_file() ? own : 0};
    comm_.all_reduce(count);
    start.parameters = count[0];
    for (const auto& difference : restored.differences) start.notes.push_back("not as it was: " + difference);
    events_.on_start(start);
  }

  std::vector<size_t> draw(int64_t step) {
    const auto share = static_cast<size_t>(settings_.batch / trainee_->data_ranks());
    const auto epoch = static_cast<size_t>(step / steps_per_epoch_);
    if (!sampler_ || sampler_->epoch() != epoch || sampler_at_ != step) {
      sampler_ = std::make_unique<DistributedSampler>(
          static_cast<size_t>(task_->train_size()),
          DistributedSamplerOptions{.rank = trainee_->data_rank(),
                                    .world_size = trainee_->data_ranks(),
                                    .drop_last = true,
                                    .seed = static_cast<uint64_t>(settings_.seed)});
      sampler_->set_epoch(epoch);
      sampler_->resume_at(static_cast<size_t>(step % steps_per_epoch_) * share);
    }
    sampler_at_ = step + 1;
    return sampler_->next(share).value();
  }

  void train_from(int64_t first) {
    const auto start = Clock::now();
    double exposed = 0;
    for (int64_t step = first; step < steps_ && result_.stop_signal == 0; ++step) {
      const auto begin = Clock::now();
      const auto indices = draw(step);
      const Batch batch = task_->train_batch(indices);
      const double lr = learning_rate(settings_.lr, settings_.warmup, steps_, step);
      optimizer_->zero_grad();
      const auto own_loss = trainee_->step(batch, step);
      const double norm = trainee_->clip(settings_.clip);
      set_learning_rate(*optimizer_, lr);
      optimizer_->step();
      const Told told = exchange(own_loss, step);
      exposed += trainee_->exposed_ms();
      const double took = seconds_since(begin);
      note(step + 1, told, own_loss, indices, lr, norm, took, seconds_since(start));
      if (step == first) result_.first_loss = told.loss;
      result_.step = step + 1;
      result_.loss = told.loss;
      result_.stop_signal = told.stop_signal;
      if (settings_.checkpoint_every > 0 && (step + 1) % settings_.checkpoint_every == 0) save();
    }
    const int64_t done = result_.step - first;
    result_.seconds = seconds_since(start);
    if (done > 0) {
      result_.tokens_per_s =
          static_cast<double>(done * settings_.batch * task_->tokens_per_sample()) / result_.seconds;
      result_.exposed_ms = exposed / static_cast<double>(done);
    }
  }

  Told exchange(const std::optional<double>& own_loss, int64_t step) {
    const auto world = static_cast<size_t>(comm_.world_size());
    std::vector<double> mine = {own_loss.value_or(0), own_loss ? 1.0 : 0.0,
                                static_cast<double>(events_.stop_signal())};
    std::vector<double> all(mine.size() * world);
    comm_.all_gather(mine, all);
    Told told;
    double count = 0;
    for (size_t rank = 0; rank < world; ++rank) {
      told.loss += all[3 * rank];
      count += all[3 * rank + 1];
      told.stop_signal = std::max(told.stop_signal, static_cast<int>(all[3 * rank + 2]));
    }
    told.loss /= count;
    if (!std::isfinite(told.loss)) {
      // abs: a NaN may carry a sign, which says nothing.
      throw Error(fmt::format("train: the loss is {} at step {} of {}; hint: lower --lr, now {}",
                              std::abs(told.loss), step + 1, steps_, settings_.lr));
    }
    return told;
  }

  void note(int64_t step, const Told& told, const std::optional<double>& own_loss,
            const std::vector<size_t>& indices, double lr, double norm, double took, double seconds) {
    log_->step(step, own_loss, told.loss, indices);
    const double tokens_per_s = static_cast<double>(settings_.batch * task_->tokens_per_sample()) / took;
    if (metrics_) {
      metrics_->append({.step = step,
                        .loss = told.loss,
                        .lr = lr,
                        .tokens_per_s = tokens_per_s,
                        .gradient_norm = norm,
                        .exposed_ms = trainee_->exposed_ms()});
    }
    if (tensorboard_) {
      const double now =
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      tensorboard_->scalar("train/loss", told.loss, step, now);
      tensorboard_->scalar("train/lr", lr, step, now);
      tensorboard_->scalar("train/tokens_per_s", tokens_per_s, step, now);
      tensorboard_->scalar("train/gradient_norm", norm, step, now);
    }
    events_.on_step({.step = step, .loss = told.loss, .tokens_per_s = tokens_per_s, .seconds = seconds});
  }

  void save() {
    saver_.save(result_.step, result_.loss, *trainee_, *optimizer_);
    saved_ = result_.step;
  }

  void finish() {
    if (result_.step > saved_) save();
    if (result_.step > 0) result_.checkpoint = saver_.folder_of(result_.step);
    if (result_.stop_signal != 0) return;
    validate();
  }

  void validate() {
    const int64_t size = std::min(settings_.batch, task_->validation_size());
    const int64_t batches = task_->validation_size() / size;
    std::vector<double> sums(4);  // loss, batches, right, all
    for (int64_t i = 0; i < batches; ++i) {
      if (i % trainee_->data_ranks() != trainee_->data_rank()) continue;
      const auto evaluation = trainee_->evaluate(task_->validation_batch(i * size, (i + 1) * size));
      if (!evaluation) continue;
      sums[0] += evaluation->loss;
      sums[1] += 1;
      sums[2] += static_cast<double>(evaluation->score.right);
      sums[3] += static_cast<double>(evaluation->score.all);
    }
    comm_.all_reduce(sums);
    result_.validation_loss = sums[0] / sums[1];
    result_.accuracy = sums[2] / sums[3];
    if (const auto floor = task_->validation_floor()) {
      result_.floor = floor->nats;
      result_.leaks = floor->is_passed_by(result_.validation_loss);
    }
    if (!tensorboard_) return;
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    tensorboard_->scalar("validation/loss", result_.validation_loss, result_.step, now);
    tensorboard_->scalar("validation/accuracy", result_.accuracy, result_.step, now);
  }

  const Run& run_;
  const TrainSettings& settings_;
  mutable Communicator comm_;
  const TrainOptions& options_;
  const TrainEvents& events_;
  std::unique_ptr<Task> task_;
  const int64_t steps_per_epoch_;
  const int64_t steps_;
  Saver saver_;
  std::unique_ptr<Trainee> trainee_;
  std::unique_ptr<FusedAdamW> optimizer_;
  std::unique_ptr<DistributedSampler> sampler_;
  int64_t sampler_at_ = 0;  ///< The step that its next samples are for.
  std::unique_ptr<RankLog> log_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  int64_t saved_ = 0;
  TrainResult result_;
};

}  // namespace

TrainResult train(const Run& run, Communicator comm, const TrainOptions& options, const TrainEvents& events) {
  return Trainer(run, std::move(comm), options, events).run();
}

}  // namespace lockstep::train
