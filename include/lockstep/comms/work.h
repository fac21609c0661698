#pragma once

#include <memory>
#include <utility>

namespace lockstep {

/// Something that goes on while the caller does other things. Copies speak of the same thing. Buffers given
/// to it must stay until it is over; it goes on whether or not anybody keeps this object.
class Work {
 public:
  /// How the thing is asked; made by the communicator.
  class State {
   public:
    virtual ~State() = default;
    virtual bool test() = 0;
    virtual void wait() = 0;
  };

  Work() = default;  ///< Over from the beginning.
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Whether it is over. Throws what went wrong, as wait() does.
  bool is_completed() const { return state_ == nullptr || state_->test(); }
  /// Until it is over. Throws what the blocking form would have thrown, every time.
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
