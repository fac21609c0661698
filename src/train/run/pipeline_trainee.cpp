#include "train/run/pipeline_trainee.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/parallel/pipeline/partition.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/train/optim/clip_grad_norm.h"
#include "train/run/weights.h"

namespace lockstep::train {

namespace {

constexpr int kChunksOfInterleaved = 2;

class PipelineTrainee : public Trainee {
 public:
  PipelineTrainee(const Run& run, const Task& task, const Communicator& comm, int64_t first_step)
      : task_(task),
        comm_(comm),
        stages_(take_stages(run, task, comm)),
        weights_(weights_of(stages_)),
        pipeline_(
            chunks(), comm,
            [this](const at::Tensor& output, const at::Tensor& targets) { return loss(output, targets); },
            options(run, first_step)) {}

  // All ranks see every sample.
  int data_rank() const override { return 0; }
  int data_ranks() const override { return 1; }

  std::optional<double> step(const Batch& batch, int64_t) override {
    const auto loss = pipeline_.step(batch.inputs, batch.targets);
    if (!loss.defined()) return std::nullopt;
    return loss.item<double>();
  }

  double clip(double max_norm) override {
    std::vector<at::Tensor> own;
    for (const auto& [name, weight] : weights_) {
      if (!weight.is_copy) own.push_back(weight.tensor);
    }
    const double norm = clip_grad_norm_(own, std::numeric_limits<double>::max());
    std::vector<double> squares = {norm * norm};
    comm_.all_reduce(squares);
    const double of_all = std::sqrt(squares[0]);
    const double factor = max_norm / (of_all + 1e-6);
    if (max_norm > 0 && factor < 1) {
      const at::NoGradGuard no_grad;
      for (const auto& [name, weight] : weights_) {
        if (weight.tensor.grad().defined()) weight.tensor.grad().mul_(factor);
      }
    }
    return of_all;
  }

  std::optional<Evaluation> evaluate(const Batch& batch) override {
    for (auto& stage : stages_) stage->eval();
    evaluation_ = Task::Score();
    const auto loss = pipeline_.evaluate(batch.inputs, batch.targets);
    for (auto& stage : stages_) stage->train();
    const auto score = *std::exchange(evaluation_, std::nullopt);
    if (!loss.defined()) return std::nullopt;
    return Evaluation{.loss = loss.item<double>(), .score = score};
  }

  double exposed_ms() const override {
    const auto& actions = pipeline_.plan().actions[static_cast<size_t>(comm_.rank())];
    const auto& spans = pipeline_.report().actions;
    double seconds = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (!actions[i].is_compute()) seconds += spans[i].end - spans[i].start;
    }
    return seconds * 1000;
  }
  const Weights& weights() const override { return weights_; }
  int files() const override { return comm_.world_size(); }
  std::optional<int> own_file() const override { return comm_.rank(); }

 private:
  static std::vector<torch::nn::Sequential> take_stages(const Run& run, const Task& task,
                                                        const Communicator& comm) {
    const auto model = task.make_model(static_cast<uint64_t>(run.settings.seed));
    const int chunks = run.settings.schedule == "interleaved" ? kChunksOfInterleaved : 1;
    const int ranks = comm.world_size();
    const Cuts cuts = cut_by_count(static_cast<int64_t>(model->size()), ranks * chunks);
    std::vector<torch::nn::Sequential> stages;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      stages.push_back(take_stage(model, cuts, comm.rank() + chunk * ranks));
    }
    return stages;
  }

  static Weights weights_of(const std::vector<torch::nn::Sequential>& stages) {
    Weights all;
    for (const auto& stage : stages) {
      for (const auto& [name, weight] : named_weights(*stage)) {
        if (!all.contains(name) || all[name].is_copy) all[name] = weight;
      }
    }
    return all;
  }

  std::vector<AnyModel> chunks() const {
    std::vector<AnyModel> all;
    for (const auto& stage : stages_) all.emplace_back(stage);
    return all;
  }

  PipelineOptions options(const Run& run, int64_t first_step) const {
    PipelineOptions made = {.schedule = run.settings.schedule,
                            .microbatches = static_cast<int>(run.microbatches()),
                            .seed = static_cast<uint64_t>(run.settings.seed),
                            .first_step = first_step};
    for (const auto& [copy, original] : tied_names()) {
      const auto found = weights_.find(original);
      if (found != weights_.end()) made.tied[original] = found->second.tensor;
    }
    return made;
  }

  at::Tensor loss(const at::Tensor& output, const at::Tensor& targets) {
    if (evaluation_) {
      const auto score = task_.score(output, targets);
      evaluation_->right += score.right;
      evaluation_->all += score.all;
    }
    return task_.loss(output, targets);
  }

  const Task& task_;
  Communicator comm_;
  std::vector<torch::nn::Sequential> stages_;
  const Weights weights_;
  Pipeline pipeline_;
  std::optional<Task::Score> evaluation_;  ///< While there is one: what it has come to.
};

}  // namespace

std::unique_ptr<Trainee> make_pipeline_trainee(const Run& run, const Task& task, const Communicator& comm,
                                               int64_t first_step) {
  return std::make_unique<PipelineTrainee>(run, task, comm, first_step);
}

}  // namespace lockstep::train
