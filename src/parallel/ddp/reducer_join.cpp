// Ranks that have no more inputs do in the steps of the others what they can.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"
#include "lockstep/parallel/ddp/sync_batch_norm.h"
#include "parallel/ddp/reducer.h"
#include "parallel/ddp/sync_normalize.h"

namespace lockstep::ddp {

void Reducer::announce_step() {
  if (join_.is_on()) join_.tell({.is_active = true, .phase = Phase::kBackward});
}

void Reducer::shadow_step() {
  struct Shadow {
    Reducer& self;
    explicit Shadow(Reducer& reducer) : self(reducer) { self.is_shadow_ = true; }
    ~Shadow() { self.is_shadow_ = false; }
  } shadow(*this);
  open_step();
  close_step();
}

void Reducer::join(const std::function<void()>& loop, const JoinOptions& options) {
  join_.begin(options);
  struct End {
    Reducer& self;
    std::vector<SyncBatchNormImpl*> norms = {};
    ~End() {
      for (const auto* norm : norms) norm->group_->before_call = nullptr;
      self.sends_late_ = false;
      self.awaited_.clear();
      self.awaited_in_eval_.clear();
      self.join_.end();
    }
  } end{*this};
  for (const auto& module : replica_.module().modules()) {
    auto* const norm = module->as<SyncBatchNormImpl>();
    if (norm == nullptr) continue;
    norm->group_->before_call = [this, number = static_cast<int64_t>(end.norms.size())](bool is_backward) {
      join_.tell({.is_active = true,
                  .phase = is_backward ? Phase::kNormaliseBackward : Phase::kNormalise,
                  .norm = number});
    };
    end.norms.push_back(norm);
  }
  sends_late_ = !end.norms.empty();
  all_threw_ = false;
  try {
    loop();
    cancel_step();
  } catch (...) {
    cancel_step();  // which may make all others throw
    if (!all_threw_ && !join_.all_threw()) join_.tell({.has_failed = true});
    throw;
  }
  for (;;) {
    join_.tell({});
    if (join_.active() == 0) break;
    switch (join_.phase()) {
      case Phase::kBroadcastBuffers:
        replica_.broadcast_buffers(join_.lowest_active());
        break;
      case Phase::kBackward:
        shadow_step();
        break;
      case Phase::kNormalise:
      case Phase::kNormaliseBackward: {
        if (join_.norm() >= end.norms.size()) {
          throw Error(fmt::format("ddp join: rank {} announced SyncBatchNorm {}, this rank's model has {}",
                                  join_.lowest_active(), join_.norm(), end.norms.size()));
        }
        const SyncBatchNormImpl& norm = *end.norms[join_.norm()];
        const int64_t channels = norm.options.num_features();
        if (join_.phase() == Phase::kNormalise) {
          parallel::gather_statistics(at::empty({0, channels}), norm.group_->comm);
        } else {
          norm.group_->comm.all_reduce(at::zeros({2, channels}, at::kDouble));
        }
        break;
      }
      case Phase::kWeigh:
      case Phase::kNone:
        break;
    }
  }
  replica_.broadcast_parameters(join_.lowest_active());
  replica_.broadcast_buffers(join_.lowest_active());
}

}  // namespace lockstep::ddp
