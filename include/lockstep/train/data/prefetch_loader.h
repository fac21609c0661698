#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "lockstep/error.h"

namespace lockstep {

/// Has a source's next batches ready: a thread of its own calls the source, up to `depth` batches ahead of
/// who consumes them.
///
/// A source is anything that is called without arguments and returns std::optional<Batch>: a batch, or
/// nothing at the end. Batches come out in the source's order. What the source throws is thrown by next() in
/// the place of the batch that is missing, and then the source is at its end; it is not called again. The
/// source is called, moved and destroyed by one thread at a time, never by two.
///
/// Destroyed half way, it waits for the source's current call to return and drops what was ready. The
/// thread starts with torch's defaults: a NoGradGuard of the caller does not hold in it.
///
///     for (auto& batch : PrefetchLoader(read_batch)) train(batch);
///     for (auto& batch : PrefetchLoader(batches_of(*torch_loader), /*depth=*/4)) train(batch);
template <typename Batch>
class PrefetchLoader {
 public:
  /// Starts at once. Throws UsageError if depth is 0.
  template <typename Source>
  explicit PrefetchLoader(Source source, std::size_t depth = 2) : depth_(depth) {
    if (depth == 0) throw UsageError("PrefetchLoader: depth is 0; hint: at least 1 batch must fit");
    thread_ = std::thread([this, own = std::move(source)]() mutable { fill(own); });
  }

  ~PrefetchLoader() { stop(); }
  PrefetchLoader(const PrefetchLoader&) = delete;
  PrefetchLoader& operator=(const PrefetchLoader&) = delete;

  /// Waits for the next batch; nothing at the end, and ever after.
  std::optional<Batch> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || is_over_; });
    if (ready_.empty()) {
      if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
      return std::nullopt;
    }
    std::optional<Batch> batch(std::move(ready_.front()));
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

  /// Ends early: waits for the source's current call, and drops what is ready. next() then returns nothing.
  /// For the consumer's thread, as next() is.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock(mutex_);
    ready_.clear();
    failure_ = nullptr;
  }

  /// Goes over what is left of the batches, once.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Iterator() = default;
    explicit Iterator(PrefetchLoader& loader) : loader_(&loader), batch_(loader.next()) {}

    Batch& operator*() { return *batch_; }
    Batch* operator->() { return &*batch_; }
    Iterator& operator++() {
      batch_ = loader_->next();
      return *this;
    }
    bool operator==(const Iterator& other) const { return batch_.has_value() == other.batch_.has_value(); }

   private:
    PrefetchLoader* loader_ = nullptr;
    std::optional<Batch> batch_;
  };
  Iterator begin() { return Iterator(*this); }
  Iterator end() { return {}; }

 private:
  template <typename Source>
  void fill(Source& source) {
    std::exception_ptr failure;
    try {
      while (has_room()) {
        std::optional<Batch> batch = source();
        if (!batch) break;
        const std::lock_guard lock(mutex_);
        ready_.push_back(std::move(*batch));
        changed_.notify_all();
      }
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    is_over_ = true;
    changed_.notify_all();
  }

  /// Waits until it is worth calling the source; false if nobody wants more.
  bool has_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_.size() < depth_ || is_stopped_; });
    return !is_stopped_;
  }

  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr failure_;
  bool is_over_ = false;
  bool is_stopped_ = false;
  std::thread thread_;
};

template <typename Source>
PrefetchLoader(Source) -> PrefetchLoader<typename std::invoke_result_t<Source&>::value_type>;
template <typename Source>
PrefetchLoader(Source, std::size_t) -> PrefetchLoader<typename std::invoke_result_t<Source&>::value_type>;

/// One pass over a range, such as a data loader of torch, as a source; begun by the first call. The range
/// must stay until the source is gone. Torch's loaders cannot begin anew while a pass is abandoned half way:
/// make a new loader then.
template <typename Range>
auto batches_of(Range& range) {
  using Position = decltype(range.begin());
  using Batch = std::decay_t<decltype(*std::declval<Position&>())>;
  return [&range, position = std::optional<Position>()]() mutable -> std::optional<Batch> {
    if (position) {
      ++*position;
    } else {
      position.emplace(range.begin());
    }
    if (*position == range.end()) return std::nullopt;
    return std::move(**position);
  };
}

}  // namespace lockstep
