#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::transport {

/// What an engine that only moves messages gives: bytes between two ranks of a job. Messages from one rank to
/// another in one channel arrive in order; the receiver must ask for exactly as many bytes as were sent. An
/// engine whose messages carry their length may use the lower 31 bits of a channel alone. Thread-safe.
class Wire {
 public:
  /// Whether messages move only while some thread looks at one of them, or waits for it.
  virtual bool moves_in_calls_only() const = 0;

  /// The way to a rank is no more. The control plane may know why.
  struct Broken {
    std::string why;
  };

  /// Longer messages are handed to the engine in segments of this size, so that one can see them move.
  static constexpr size_t kSegmentBytes = size_t{256} << 10;

  /// A message on its way. Thread-safe.
  class Post {
   public:
    virtual ~Post() = default;
    /// Until it is over, but about so long at most: 0 looks once. Whether it is over. Throws Broken.
    virtual bool wait_for(std::chrono::nanoseconds patience) = 0;
    /// Segments that were over when it was last looked at.
    virtual size_t moved() const = 0;
  };

  virtual ~Wire() = default;

  /// Both begin at once and do not wait; the memory must stay until the post is over. `to` and `from` are
  /// ranks of the job. They throw Broken.
  virtual std::unique_ptr<Post> send(int to, uint64_t channel, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Post> receive(int from, uint64_t channel, void* data, size_t bytes) = 0;

  /// Before this rank leaves: until what it sent is on its peers' hosts, or nothing moves any more.
  virtual void flush() {}
};

}  // namespace lockstep::transport
