#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "lockstep/parallel/ddp/logging_data.h"
#include "lockstep/parallel/ddp/options.h"
#include "lockstep/parallel/ddp/outputs.h"

namespace lockstep {

namespace ddp {
class Reducer;
}

/// While it lives, backward() leaves gradients where they are: for accumulation over several batches.
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<ddp::Reducer> reducer);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<ddp::Reducer> reducer_;
};

/// What DistributedDataParallel does for a model of any type.
class DistributedDataParallelBase {
 public:
  /// `{ auto guard = ddp.no_sync(); ddp.forward(x).backward(); }`: this backward is not synchronised, nor are
  /// buffers by a forward within. What counts is where backward() is called. All ranks must do the same.
  [[nodiscard]] NoSync no_sync() { return NoSync(reducer_); }

  /// Runs `loop`, whose number of forward and backward passes may differ from rank to rank: a rank that is
  /// done takes part in what the others do, with gradients of zero, until all are done; then all get the
  /// weights and buffers of one that was last. It counts as an empty batch in SyncBatchNorm. Optimizers are
  /// not told. Ranks that have inputs still run forward and backward in the same order, or all throw.
  void join(const std::function<void()>& loop, const JoinOptions& options = {});

  /// Every parameter once, also where the model holds it twice: for optimizers.
  std::vector<at::Tensor> parameters() const;

  DdpLoggingData logging_data() const;

 protected:
  DistributedDataParallelBase(std::shared_ptr<torch::nn::Module> module, const Communicator& comm,
                              const DdpOptions& options);
  void before_forward(int64_t batch);
  void watch(at::Tensor& output, int64_t batch);

 private:
  std::shared_ptr<ddp::Reducer> reducer_;
};

namespace ddp {

template <typename Impl>
std::shared_ptr<Impl> module_of(const std::shared_ptr<Impl>& module) {
  return module;
}
template <typename Impl>
std::shared_ptr<Impl> module_of(const torch::nn::ModuleHolder<Impl>& holder) {
  return holder.ptr();
}
template <typename Handle>
using ImplOf = typename decltype(module_of(std::declval<const Handle&>()))::element_type;

/// The first dimension of the first tensor among the arguments; -1 if there is none.
inline int64_t batch_of() {
  return -1;
}
template <typename First, typename... Rest>
int64_t batch_of(const First& first, const Rest&... rest) {
  if constexpr (std::is_base_of_v<at::Tensor, First>) {
    return first.defined() && first.dim() > 0 ? first.size(0) : -1;
  } else {
    return batch_of(rest...);
  }
}

}  // namespace ddp

/// Data parallel training of a LibTorch module: every rank has the same weights and its own share of each
/// batch, and backward() leaves the mean of all ranks' gradients in `.grad`, on every rank the same bits.
///
///   auto ddp = DistributedDataParallel(model, comm);
///   ddp.forward(x).backward();
///
/// The constructor compares the ranks' parameters and buffers (names, shapes, types; the first difference is
/// an error that names it), then gives all ranks rank 0's values. Gradients are sent in buckets, as soon as
/// backward has computed them (see DdpOptions::overlap), where autograd put them; nothing is copied where
/// ranks share memory. backward() returns when all are reduced. A module that is called directly, or under
/// no_grad, is not synchronised; `torch::autograd::grad` neither.
///
/// Any forward signature: arguments are handed on, and what it returns is searched for tensors (outputs.h). A
/// leaf among them (a parameter) is returned as a view of it. Gradients that reach parameters past all
/// outputs (a loss made of a member of the model) are averaged at the end of that backward.
///
/// All ranks must construct it, and backpropagate, equally often. At each synchronised backward they compare
/// how many forwards in training mode (with gradients enabled) had none since the last one: a rank that
/// skipped a backward is an error on all ranks that names it, for its batch i+1 would be averaged with the
/// others' batch i. So evaluate in eval mode or under no_grad, or on all ranks. (Forwards in eval mode
/// count in a step that backpropagates one of them.) Not noticed: a rank that
/// leaves out a batch before its forward; at the end of the loop the others wait for it. A backward that
/// threw on one rank, after it had reached the model, is over for the others when that rank calls forward
/// next or goes: they throw, and all can go on. Not thread-safe.
template <typename Impl>
class DistributedDataParallel : public DistributedDataParallelBase {
 public:
  template <typename Handle>
  DistributedDataParallel(const Handle& model, const Communicator& comm, const DdpOptions& options = {})
      : DistributedDataParallelBase(ddp::module_of(model), comm, options), module_(ddp::module_of(model)) {}

  template <typename... Args>
  auto forward(Args&&... args) {
    const int64_t batch = ddp::batch_of(args...);
    before_forward(batch);
    auto output = module_->forward(std::forward<Args>(args)...);
    for_each_tensor(output, [&](const at::Tensor& tensor) { watch(const_cast<at::Tensor&>(tensor), batch); });
    return output;
  }
  template <typename... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  const std::shared_ptr<Impl>& module() const { return module_; }
  Impl* operator->() const { return module_.get(); }

 private:
  std::shared_ptr<Impl> module_;
};

template <typename Handle>
DistributedDataParallel(const Handle&, const Communicator&) -> DistributedDataParallel<ddp::ImplOf<Handle>>;
template <typename Handle>
DistributedDataParallel(const Handle&, const Communicator&, const DdpOptions&)
    -> DistributedDataParallel<ddp::ImplOf<Handle>>;

}  // namespace lockstep
