#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "lockstep/comms/pipeline_comms.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "parallel/pipeline/stage_layers.h"

namespace lockstep::pipeline {

/// Shape and type of a tensor between two stages.
struct Form {
  std::vector<int64_t> sizes = {};
  at::ScalarType type = at::kFloat;
  bool operator==(const Form&) const = default;
};

/// A form on its way: type, number of dimensions, sizes, zeros.
constexpr size_t kFormWords = 10;
/// What another rank sent, checked; throws Error for what no stage can have made.
Form form_of_words(const std::array<int64_t, kFormWords>& words);

/// What a rank's stages take and make, by place (see Step::place).
struct Forms {
  std::vector<Form> inputs, outputs;
};

/// What a step works on.
struct StepInput {
  const plan::PipelinePlan& plan;
  Communicator& comm;
  const std::vector<StageLayers>& chunks;
  const Pipeline::Loss& loss;
  int64_t number;  ///< For errors and traces.
  bool trains;     ///< Or is forward alone.
  bool recomputes;
  double scale;                                       ///< Of the gradients.
  uint64_t seed;                                      ///< Of this step.
  std::vector<at::Tensor> inputs = {}, targets = {};  ///< By micro-batch; where they are needed.
  std::vector<double> weights = {};                   ///< Of each micro-batch's loss in the batch's.
};

/// Runs this rank's actions of a plan, once.
///
/// Receives are posted ahead of the action that needs them, sends go on while the next actions run. Of a
/// stage's output only the edge of the graph stays once it has been sent. In a step that learns, each tensor
/// that goes forward is preceded by its form, and nothing is posted ahead.
class Step {
 public:
  /// `forms`: to be filled in by a step that learns, known to any other.
  Step(StepInput input, Forms& forms, bool learns);
  /// After a failure messages may still be on their way to or from our memory: until that is over.
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// The loss of the batch on the rank of the last stage; undefined elsewhere.
  at::Tensor run();
  const PipelineReport& report() const { return report_; }

 private:
  /// A micro-batch in a stage of this rank.
  struct Slot {
    at::Tensor input = {};            ///< A leaf of the stage's graph.
    at::Tensor output = {};           ///< To be sent; without its graph.
    torch::autograd::Edge root = {};  ///< Where backward begins; none if nothing needs a gradient.
    at::Tensor gradient = {};         ///< Of the output.
    at::Tensor input_gradient = {};   ///< To be sent.
  };

  /// A message, and the action that sent it.
  struct Leaving {
    TensorWork message;
    plan::Action action;
  };

  /// A rank's stages and micro-batches, counted through: chunk by chunk.
  size_t place(int stage, int microbatch) const;
  Slot& slot(int stage, int microbatch) { return slots_[place(stage, microbatch)]; }
  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage + 1 == in_.plan.shape.stages(); }
  bool is_here(int stage) const { return in_.plan.shape.rank_of(stage) == in_.comm.rank(); }

  /// Runs `act`: whatever goes wrong then says in which action, on all ranks.
  template <typename Act>
  void guard(const plan::Action& action, const Act& act);
  void act(const plan::Action& action);
  void forward(const plan::Action& action);
  void backward(const plan::Action& action);
  /// The stage's output, or the last one's share of the loss.
  at::Tensor compute(const plan::Action& action, const at::Tensor& input);
  void arrived(const plan::Action& action, const at::Tensor& tensor);
  void hand_forward(int stage, int microbatch, const at::Tensor& activation);

  void post_receives();
  at::Tensor receive(const plan::Action& action);
  Form form_from(const plan::Action& action);
  void send(const plan::Action& action);
  void isend(const at::Tensor& tensor, const plan::Action& action);
  /// Alike at both ends of a message, and of no other one of this step.
  int tag_of(const plan::Action& action) const;
  std::string where(const plan::Action& action) const;

  const StepInput in_;
  Forms& forms_;
  const bool learns_;
  const std::vector<plan::Action>& actions_;
  std::vector<Slot> slots_;
  std::vector<plan::Action> receives_;  ///< All of this rank's, in order.
  size_t posted_ = 0, received_ = 0;    ///< Of them.
  std::deque<TensorWork> arriving_;     ///< Posted, not yet received.
  std::deque<Leaving> leaving_;
  at::Tensor loss_;
  int live_ = 0;
  PipelineReport report_;
};

}  // namespace lockstep::pipeline
