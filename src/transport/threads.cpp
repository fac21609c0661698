#include "transport/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "launch/cores.h"
#include "lockstep/error.h"
#include "transport/shared_job.h"

namespace lockstep::transport {

namespace {

class ThreadControl;

/// What the ranks of one process have in common.
struct Hall {
  std::vector<std::shared_ptr<Arena>> arenas;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::map<int, std::string>> meetings;
  std::optional<Failure> failure;
  std::vector<ThreadControl*> controls;
  std::vector<bool> left;
};

class ThreadControl final : public Control {
 public:
  ThreadControl(std::shared_ptr<Hall> hall, int rank) : hall_(std::move(hall)), rank_(rank) {
    hall_->controls[static_cast<size_t>(rank_)] = this;
  }
  ~ThreadControl() override {
    const std::lock_guard lock(hall_->mutex);
    hall_->controls[static_cast<size_t>(rank_)] = nullptr;
  }

  std::vector<std::string> all_gather(const std::string& tag, const std::vector<int>& members,
                                      const std::string& blob, Clock::time_point deadline) override {
    std::unique_lock lock(hall_->mutex);
    auto& meeting = hall_->meetings[tag];
    meeting[rank_] = blob;
    hall_->changed.notify_all();
    const auto missing = [&]() -> int {
      for (const int member : members) {
        if (!meeting.contains(member)) return member;
      }
      return -1;
    };
    const auto over = [&] {
      const int absent = missing();
      return hall_->failure || absent < 0 || hall_->left[static_cast<size_t>(absent)];
    };
    const bool in_time = hall_->changed.wait_until(lock, deadline, over);
    if (hall_->failure) hall_->failure->raise();
    if (const int absent = missing(); absent >= 0) {
      const std::string text = fmt::format("meeting {} on rank {}: rank {} {}", tag, rank_, absent,
                                           in_time ? "has left" : "did not come");
      if (in_time) throw PeerError(text, absent);
      throw TimeoutError(text, absent);
    }
    std::vector<std::string> blobs;
    for (const int member : members) blobs.push_back(meeting[member]);
    return blobs;
  }

  void fail(const Failure& failure) override {
    const std::lock_guard lock(hall_->mutex);
    if (hall_->failure) return;
    hall_->failure = failure;
    for (auto* control : hall_->controls) {
      if (control != nullptr) control->has_failed_.store(true, std::memory_order_release);
    }
    hall_->changed.notify_all();
  }

  const std::atomic<bool>& failed_flag() const override { return has_failed_; }

  std::optional<Failure> failure() const override {
    const std::lock_guard lock(hall_->mutex);
    return hall_->failure;
  }

  bool has_left(int rank) const override {
    const std::lock_guard lock(hall_->mutex);
    return hall_->left[static_cast<size_t>(rank)];
  }

  void leave(Clock::time_point) override {
    const std::lock_guard lock(hall_->mutex);
    hall_->left[static_cast<size_t>(rank_)] = true;
    hall_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Hall> hall_;
  const int rank_;
  std::atomic<bool> has_failed_ = false;  ///< Set after the failure can be read.
};

}  // namespace

std::vector<std::unique_ptr<Job>> make_thread_jobs(int world, const ThreadsOptions& options) {
  const auto hall = std::make_shared<Hall>();
  hall->controls.resize(static_cast<size_t>(world));
  hall->left.resize(static_cast<size_t>(world));
  std::vector<SharedMemory> memories;
  for (int rank = 0; rank < world; ++rank) {
    hall->arenas.push_back(std::make_shared<Arena>(options.arena_bytes));
    memories.push_back({hall->arenas.back()->mapping().base(), hall->arenas.back()->mapping().span_bytes()});
  }
  const GroupOptions group = {.crowded = world > launch::usable_cores(),
                              .rendezvous = options.rendezvous,
                              .delays = options.delays,
                              .first_run = options.first_run};
  std::vector<std::unique_ptr<Job>> jobs;
  for (int rank = 0; rank < world; ++rank) {
    jobs.push_back(std::make_unique<SharedJob>("threads", rank, std::make_unique<ThreadControl>(hall, rank),
                                               hall->arenas[static_cast<size_t>(rank)], memories, hall,
                                               group));
  }
  return jobs;
}

}  // namespace lockstep::transport
