#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "lockstep/parallel/ddp/bucketing.h"
#include "lockstep/parallel/ddp/logging_data.h"
#include "lockstep/parallel/ddp/options.h"
#include "parallel/ddp/gradient_hook.h"
#include "parallel/ddp/join.h"
#include "parallel/ddp/replica.h"
#include "parallel/ddp/tied_step_check.h"

namespace lockstep::ddp {

/// Reduces gradients while backward computes them.
///
/// A *step* is one synchronised backward. It opens when backward reaches an output of the model, so that a
/// rank none of whose parameters takes part has it too (or, if backward reaches parameters by another way
/// while a forward awaits its backward, at the end of that backward); a hook on each parameter tells when its
/// gradient has come; buckets are sent in the same order on all ranks, each when all its gradients have come;
/// autograd's callback at the end of backward sends the rest, waits, and closes it. Last, the ranks tell each
/// other in a few numbers whether all went well: if not on any, all throw the same.
///
/// The first step sends nothing before its end: it learns how often and in which order gradients come.
/// Buckets are then made anew in that order.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  /// What opens a step: backward at an output that watch() was told of, or the first gradient that comes.
  enum class Opening : uint8_t { kOutputs, kGradients };

  Reducer(std::shared_ptr<torch::nn::Module> module, const Communicator& comm, const DdpOptions& options,
          Opening opening = Opening::kOutputs);
  /// Ends a step that is still open, for the sake of the others.
  ~Reducer();

  /// `batch`: samples that this rank gives; -1 if not known.
  void before_forward(int64_t batch);
  /// An output of the model: backward passes here first.
  void watch(at::Tensor& output, int64_t batch);
  void join(const std::function<void()>& loop, const JoinOptions& options);

  const Replica& replica() const { return replica_; }
  DdpLoggingData logging_data() const;
  std::vector<GradientBucket> buckets() const;

  int no_syncs = 0;  ///< While positive, nothing is synchronised.

 private:
  using Clock = std::chrono::steady_clock;

  /// A parameter that needs a gradient, in the step that is open.
  struct Gradient {
    size_t parameter;  ///< Its number in the replica.
    at::ScalarType scalar_type;
    DataType type;
    GradientHook hook = {};
    size_t bucket = 0;
    int expected = 1;  ///< How often a gradient comes in one backward: more than once with re-entrant ones.
    int came = 0;
    const void* before = nullptr;  ///< The tensor that was its gradient when the step opened.
    at::Tensor absent = {};        ///< Zeros in place of a gradient that this rank does not have.
  };
  struct Bucket {
    std::vector<size_t> gradients = {};
    int64_t bytes = 0;
    size_t missing = 0;  ///< Gradients that have not come.
    bool is_sent = false;
    Work work = {};
    std::vector<at::Tensor> kept = {};  ///< What is being reduced, though the caller may let go of it.
    Clock::time_point ready = {}, launched = {}, done = {};
  };

  /// What ranks exchange before a forward, as the options say.
  void agree_on_forward(int64_t batch);
  void arm_hooks();
  void make_buckets(const std::vector<size_t>& order);
  /// Backward has come to an output of this forward; whether it is one that adds gradients to parameters.
  bool backward_reached(int64_t forward, int64_t batch);
  /// In a join: to ranks that have no more inputs.
  void announce_step();
  void open_step();
  /// Autograd calls close_step() when this backward is over.
  void close_at_end_of_backward();
  /// A backward has given gradients to parameters but has not reached an output of the model.
  void close_without_output();
  /// Does in a step of the others what this rank, which has no more inputs, can do.
  void shadow_step();
  /// Ends a step that an exception left open: the others throw.
  void cancel_step();
  void gradient_came(size_t index);
  void send(Bucket& bucket, size_t newest);
  /// The memory of a gradient that may be reduced in place. `newest`: it has just come, and backward holds it
  /// too.
  Buffer place_of(Gradient& gradient, bool newest);
  bool needs_own_copy(const Gradient& gradient, bool newest) const;
  void require_finite(const NamedParameter& parameter, const at::Tensor& gradient);
  void reduce_the_rest();
  void close_step();
  void find_unused();
  void find_replaced();
  /// Tells and hears how the step went; throws if badly.
  void agree();
  void agree_on_absent_gradients();
  void learn();
  void log_step();
  void trace_step();
  void complain(const std::string& problem);
  /// How errors that come from other ranks begin.
  std::string where(const char* what, int64_t number) const;
  /// Forwards that should have had a backward by the end of this step.
  size_t skipped() const { return awaited_.size() + (is_in_eval_ ? awaited_in_eval_.size() : 0); }
  const NamedParameter& parameter_of(const Gradient& gradient) const {
    return replica_.parameters()[gradient.parameter];
  }

  const DdpOptions options_;
  const Opening opening_;
  Communicator comm_;  ///< Of our own: the user's calls do not mix with ours.
  Replica replica_;
  const bool overlaps_;
  JoinState join_;
  TiedStepCheck tied_steps_;
  std::vector<Gradient> gradients_;
  std::vector<Bucket> buckets_;

  bool has_learned_ = false;
  std::vector<size_t> arrival_;  ///< Gradients by their coming, in the step that learns.
  int64_t forwards_ = 0;
  double batch_weight_ = 1;  ///< Of this rank's samples in the last forward, against the mean over ranks.

  /// Forwards in training mode since the last step that no backward has reached. Ranks compare how many.
  std::vector<int64_t> awaited_;
  /// Those in eval mode. They count in a step whose own forward is one of them: such a model is trained.
  std::vector<int64_t> awaited_in_eval_;
  std::vector<size_t> early_;       ///< Gradients that came before backward reached an output.
  std::string problem_of_forward_;  ///< Told at the next step, so that all ranks throw.

  bool is_open_ = false;
  bool is_abandoned_ = false;  ///< Its backward threw.
  size_t sent_ = 0;            ///< Buckets of the open step.
  bool is_in_eval_ = false;    ///< Its backward reached a forward in eval mode.
  bool is_stray_ = false;      ///< Its backward reached no output: all gradients that are there are averaged.
  bool is_shadow_ = false;     ///< This rank has no inputs in the open step.
  int64_t batch_ = 0;          ///< Samples since the last step.
  bool knows_batch_ = true;
  std::vector<int64_t> counted_;  ///< The forwards whose samples these are.
  std::string problem_;           ///< What went wrong on this rank; "" if nothing.
  Clock::time_point opened_, computed_;
  bool sends_late_ = false;  ///< In a join of a model with SyncBatchNorm: their sums are exchanged first.
  bool all_threw_ = false;   ///< What is on its way through a join's loop is on its way on all ranks.
  DdpLoggingData log_;
};

}  // namespace lockstep::ddp
