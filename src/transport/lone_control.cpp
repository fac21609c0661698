#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "lockstep/error.h"
#include "transport/gatherings.h"
#include "transport/star.h"

namespace lockstep::transport {

namespace {

class LoneControl final : public Control {
 public:
  std::vector<std::string> all_gather(const std::string& tag, const std::vector<int>& members,
                                      const std::string& blob, Clock::time_point) override {
    check_gather(0, 1, tag, members, blob);
    if (const auto failed = failure()) failed->raise();
    return {blob};
  }
  void fail(const Failure& failure) override {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    has_failed_.store(true, std::memory_order_release);
  }
  const std::atomic<bool>& failed_flag() const override { return has_failed_; }
  std::optional<Failure> failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  bool has_left(int) const override { return false; }
  void leave(Clock::time_point) override {}

 private:
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace

std::unique_ptr<Control> make_lone_control() {
  return std::make_unique<LoneControl>();
}

}  // namespace lockstep::transport
