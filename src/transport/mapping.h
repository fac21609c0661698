#pragma once

#include <sys/types.h>

#include <cstddef>

#include "launch/unique_fd.h"

namespace lockstep::transport {

/// Memory that other processes can map: a memfd, which the kernel releases with its last reference, so that
/// nothing can be left behind. Its span is reserved as addresses only; memory is taken as it is needed, so
/// peers that mapped it once see it grow.
class Mapping {
 public:
  static constexpr size_t kPage = 4096;

  /// Makes one of its own. Throws Error if the system refuses.
  static Mapping create(size_t span_bytes);
  /// Maps that of `rank`. Throws PeerError if the descriptor is not such memory: it must be sealed against
  /// shrinking, or a load could end this process.
  static Mapping attach(int descriptor, int rank);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* base() const { return base_; }
  size_t span_bytes() const { return span_bytes_; }
  int descriptor() const { return descriptor_.get(); }

  /// Makes sure that [offset, offset + bytes), whole pages, has memory behind it; throws Error, naming what
  /// is left, if there is not enough. Never ends the process by a signal instead.
  void take(size_t offset, size_t bytes);
  /// Gives the memory of whole pages back to the system.
  void give_back(size_t offset, size_t bytes);

  /// In a forked child, which has nothing mapped here: maps the memory so that stores stay the child's own.
  void map_private_in_child();

 private:
  Mapping(launch::UniqueFd descriptor, size_t span_bytes);

  launch::UniqueFd descriptor_;
  std::byte* base_ = nullptr;
  size_t span_bytes_ = 0;
  pid_t owner_;  ///< The process that mapped it.
};

/// What this process can still take: of the machine, or of its control group if that is less.
struct MemoryLeft {
  size_t bytes;
  size_t limit_bytes;
  bool by_control_group;
};
MemoryLeft memory_left();

}  // namespace lockstep::transport
