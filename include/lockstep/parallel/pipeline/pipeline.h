#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "lockstep/parallel/ddp/any_model.h"
#include "lockstep/plan/pipeline.h"
#include "lockstep/plan/pipeline_simulate.h"

namespace lockstep {

namespace pipeline {
class Runtime;
}

/// What a loss is over the samples of a batch.
enum class LossReduction : uint8_t {
  kMean,  ///< A micro-batch counts by its samples: the mean over all, also if they do not divide evenly.
  kSum,   ///< Micro-batches are added up.
};

struct PipelineOptions {
  /// As `lockstep plan pipeline` names them; those that split backward (zb-h1, zb-h2) cannot be run yet.
  std::string schedule = "1f1b";
  int microbatches = 4;
  LossReduction reduction = LossReduction::kMean;
  /// Keep a stage's input alone, and run its forward anew in backward: less memory, a forward more.
  bool recompute = false;
  /// Dropout draws by (seed, step, micro-batch, layer), layers of a `Sequential` being told apart by their
  /// names there: how take_stage() cuts a model, and whether it recomputes, changes no mask. Stages that are
  /// not cut from one `Sequential` count by their number as well. torch's own generator is as before after
  /// each step.
  uint64_t seed = 0;
  /// The number of the first step, from 0: training that goes on says where it stopped.
  int64_t first_step = 0;
  /// Weights that several stages use, by a name of your choice: those of the same name stay the same on all
  /// ranks that give one. Rank by rank, what it has.
  std::map<std::string, at::Tensor> tied = {};
};

/// How the last step went on this rank; evaluations leave it alone.
struct PipelineReport {
  int64_t begin_ns = 0;                   ///< By CLOCK_MONOTONIC, which all processes of a host share.
  std::vector<plan::ActionSpan> actions;  ///< As the plan's, in seconds since then.
  double seconds = 0;
  /// The most activations that lived at once, in micro-batches of a rank's part of the model.
  double peak_activations = 0;
};

/// A model whose stages are on several ranks, trained by any schedule.
///
///   Pipeline pipeline(stage, comm, [](const auto& y, const auto& t) { return torch::mse_loss(y, t); });
///   auto loss = pipeline.step(input, target);
///   optimizer.step();
///
/// The plan is proved when it is made. Shapes and types between stages are found out in the first step with a
/// new shape of input. A stage makes one tensor of floats of one tensor. Whatever goes wrong on one rank is
/// an error on all, which names the rank, the action and the micro-batch; the communicator is dead then.
class Pipeline {
 public:
  using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

  /// `chunks`: the stages of this rank, in order: stages rank, rank + P, ... of the model. All ranks call it.
  Pipeline(std::vector<AnyModel> chunks, const Communicator& comm, Loss loss,
           const PipelineOptions& options = {});
  Pipeline(const AnyModel& stage, const Communicator& comm, Loss loss, const PipelineOptions& options = {})
      : Pipeline(std::vector<AnyModel>{stage}, comm, std::move(loss), options) {}

  /// Forward and backward of a whole batch: adds gradients to the parameters' own, times `scale` (1/n for a
  /// mean over n steps that accumulate). All ranks call it. The first stage's rank gives the input, the last
  /// stage's the target; others may give anything. No gradient flows into the input. Returns the loss of the
  /// batch, unscaled, on the rank of the last stage, and an undefined tensor elsewhere.
  at::Tensor step(const at::Tensor& input, const at::Tensor& target, double scale = 1);

  /// The loss alone: no backward runs, and nothing is kept for one.
  at::Tensor evaluate(const at::Tensor& input, const at::Tensor& target);

  const plan::PipelinePlan& plan() const;
  const PipelineReport& report() const;

 private:
  std::shared_ptr<pipeline::Runtime> runtime_;
};

}  // namespace lockstep
