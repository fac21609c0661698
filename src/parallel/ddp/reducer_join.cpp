// Ranks that have no more inputs do in the steps of the others what they can.
#include "parallel/ddp/reducer.h"

namespace lockstep::ddp {

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
    JoinState& state;
    ~End() { state.end(); }
  } end{join_};
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
      case Phase::kWeigh:
      case Phase::kNone:
        break;
    }
  }
  replica_.broadcast_parameters(join_.lowest_active());
  replica_.broadcast_buffers(join_.lowest_active());
}

}  // namespace lockstep::ddp
