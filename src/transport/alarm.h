#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::transport {

/// Rings at set times, in a thread of its own that sleeps otherwise: for libraries whose waits cannot end by
/// themselves.
class Alarm {
 public:
  using Clock = std::chrono::steady_clock;

  Alarm();
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  /// Calls `ring`, once, when its time has come; not any more after the setting is gone.
  class Setting {
   public:
    Setting(Alarm& alarm, Clock::time_point when, std::function<void()> ring);
    ~Setting();
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

   private:
    friend class Alarm;
    Alarm& alarm_;
    const Clock::time_point when_;
    const std::function<void()> ring_;
  };

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Setting*> settings_;                     ///< Not many: one for each thread that waits.
  Clock::time_point next_ = Clock::time_point::max();  ///< When the thread looks again.
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep::transport
