#pragma once

#include <array>
#include <mutex>
#include <string>

#include "comms/call.h"

namespace lockstep::comms {

/// The last calls of a rank, for the text of a failure. Any thread may ask: a message that fails in the
/// background tells them while the rank goes on calling.
class History {
 public:
  /// The call has begun. No allocation, no clock.
  void add(const transport::Header& header) {
    const std::lock_guard lock(mutex_);
    calls_[count_++ % kKept] = header;
  }

  /// "last calls of this rank: barrier #811 (...), all_reduce #812 to all_reduce #840 (...)", or "" if there
  /// were none.
  std::string text() const;

 private:
  static constexpr size_t kKept = 32;
  static constexpr size_t kTold = 8;  ///< Equal ones in a row count once.
  mutable std::mutex mutex_;
  std::array<transport::Header, kKept> calls_;
  size_t count_ = 0;
};

}  // namespace lockstep::comms
