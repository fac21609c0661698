#include "transport/alarm.h"

#include <algorithm>

#include "transport/quiet_thread.h"

namespace lockstep::transport {

Alarm::Alarm() : thread_(start_quiet_thread("lockstep-alarm", [this] { run(); })) {}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Alarm::Setting::Setting(Alarm& alarm, Clock::time_point when, std::function<void()> ring)
    : alarm_(alarm), when_(when), ring_(std::move(ring)) {
  const std::lock_guard lock(alarm_.mutex_);
  alarm_.settings_.push_back(this);
  if (when_ < alarm_.next_) {
    alarm_.next_ = when_;
    alarm_.changed_.notify_one();
  }
}

Alarm::Setting::~Setting() {
  // The thread may look once in vain: cheaper than to wake it for every wait that ends in time.
  const std::lock_guard lock(alarm_.mutex_);
  std::erase(alarm_.settings_, this);
}

void Alarm::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto now = Clock::now();
    next_ = Clock::time_point::max();
    std::erase_if(settings_, [&](Setting* setting) {
      if (setting->when_ <= now) {
        setting->ring_();
        return true;
      }
      next_ = std::min(next_, setting->when_);
      return false;
    });
    if (next_ == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock,
                          Clock::time_point(next_));  // a copy: next_ may be set to an earlier time meanwhile
    }
  }
}

}  // namespace lockstep::transport
