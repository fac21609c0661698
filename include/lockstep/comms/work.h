#pragma once

#include <chrono>
#include <memory>
#include <utility>

namespace lockstep {

/// Something that goes on while the caller does other things. Copies speak of the same thing, and may be
/// asked by several threads at once. Buffers given to it must stay until it is over; it goes on whether or
/// not anybody keeps this object.
class Work {
 public:
  /// How the thing is asked; made by the communicator.
  class State {
   public:
    virtual ~State() = default;
    virtual bool test() = 0;
    virtual void wait() = 0;
    virtual std::chrono::steady_clock::time_point finished_at() { return {}; }
  };

  Work() = default;  ///< Over from the beginning.
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Whether it is over. Throws what went wrong, as wait() does.
  bool is_completed() const { return state_ == nullptr || state_->test(); }
  /// Until it is over. Throws what the blocking form would have thrown, every time.
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }
  /// When a collective was over; of a message, or before it is over: the clock's epoch.
  std::chrono::steady_clock::time_point finished_at() const {
    return state_ == nullptr ? std::chrono::steady_clock::time_point() : state_->finished_at();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
