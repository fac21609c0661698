#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

#include "trace/event.h"

namespace lockstep::trace {

/// The newest `capacity` events of one writing thread. Any thread may read at any time.
///
/// The writer stores event n into slot n mod (capacity + 1) and then raises the count to n + 1. The spare
/// slot is what makes reading safe without a lock: what a reader finds of event n was stored after the count
/// was n, and event n - capacity - 1, which n overwrites, is by that count no longer among the newest. So a
/// reader copies, looks at the count again, and keeps only what is still among the newest. Words are stored
/// with release and loaded with acquire order, so that the second look sees at least n.
class Ring {
 public:
  Ring(int rank, size_t capacity)
      : rank_(rank),
        capacity_(capacity),
        // Fresh zero pages: a ring costs only the memory that its events have reached.
        words_(static_cast<uint64_t*>(std::calloc((capacity + 1) * Event::kWords, sizeof(uint64_t)))) {
    if (words_ == nullptr) throw std::bad_alloc();
  }

  int rank() const { return rank_; }

  void append(const Event& event) {
    uint64_t* slot = words_.get() + next_ * Event::kWords;
    for (size_t i = 0; i < Event::kWords; ++i) {
      std::atomic_ref<uint64_t>(slot[i]).store(event.words[i], std::memory_order_release);
    }
    next_ = next_ == capacity_ ? 0 : next_ + 1;
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// Appends the ring's spans to `spans`, the newest first, and gives the number of older ones.
  int64_t read(std::vector<Span>& spans) const {
    const uint64_t count = count_.load(std::memory_order_acquire);
    const uint64_t first = oldest(count);
    std::vector<Event> events(count - first);
    for (uint64_t n = first; n < count; ++n) {
      uint64_t* slot = words_.get() + n % (capacity_ + 1) * Event::kWords;
      for (size_t i = 0; i < Event::kWords; ++i) {
        events[n - first].words[i] = std::atomic_ref<uint64_t>(slot[i]).load(std::memory_order_acquire);
      }
    }
    const uint64_t kept = std::min(count, oldest(count_.load(std::memory_order_acquire)));
    for (uint64_t n = count; n > kept; --n) spans.push_back(events[n - 1 - first].span(rank_));
    return static_cast<int64_t>(kept);
  }

 private:
  struct Free {
    void operator()(uint64_t* words) const { std::free(words); }
  };

  uint64_t oldest(uint64_t count) const { return count > capacity_ ? count - capacity_ : 0; }

  int rank_;
  size_t capacity_;
  std::unique_ptr<uint64_t[], Free> words_;
  size_t next_ = 0;  // The writer's; who takes the ring over does so under a lock.
  std::atomic<uint64_t> count_ = 0;
};

}  // namespace lockstep::trace
