#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::transport {

/// What an engine that only moves messages gives: bytes between two ranks of a job. Messages from one rank to
/// another in one channel arrive in order; the receiver must ask for exactly as many bytes as were sent.
/// Thread-safe.
class Wire {
 public:
  /// Whether a thread that waits leaves its core, and the wire, to others meanwhile.
  virtual bool has_quiet_waits() const = 0;

  /// The way to a rank is no more. The control plane may know why.
  struct Broken {
    std::string why;
  };

  /// A message on its way.
  class Post {
   public:
    virtual ~Post() = default;
    /// Until it is over, but about so long at most: 0 looks once. Whether it is over. Throws Broken.
    virtual bool wait_for(std::chrono::nanoseconds patience) = 0;
  };

  virtual ~Wire() = default;

  /// Both begin at once and do not wait; the memory must stay until the post is over. `to` and `from` are
  /// ranks of the job. They throw Broken.
  virtual std::unique_ptr<Post> send(int to, uint64_t channel, const void* data, size_t bytes) = 0;
  virtual std::unique_ptr<Post> receive(int from, uint64_t channel, void* data, size_t bytes) = 0;

  /// The engine's own all-reduce: sums float32, in place, over all ranks of the job; false if `members` are
  /// fewer. Throws Broken.
  virtual bool native_sum(float* data, int64_t count, int members) = 0;
};

}  // namespace lockstep::transport
