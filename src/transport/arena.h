#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "launch/unique_fd.h"

namespace lockstep::transport {

/// Memory that other processes can map: a memfd, which the kernel releases with its last reference, so that
/// nothing can be left behind. Its span is reserved as addresses only; memory is taken as it is allocated, so
/// peers that mapped it once see it grow.
class Mapping {
 public:
  /// Makes one of its own. Throws Error if the system refuses.
  static Mapping create(size_t span_bytes);
  /// Maps another process's. Throws Error if the descriptor is no such memory: it must be sealed against
  /// shrinking, or a load could end this process.
  static Mapping attach(int descriptor);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* base() const { return base_; }
  size_t span_bytes() const { return span_bytes_; }
  int descriptor() const { return descriptor_.get(); }

  /// Makes sure that [offset, offset + bytes) has memory behind it; throws Error, naming what is left, if
  /// there is not enough. Never ends the process by a signal instead.
  void take(size_t offset, size_t bytes);
  /// Gives the memory of whole pages back to the system.
  void give_back(size_t offset, size_t bytes);

 private:
  Mapping(launch::UniqueFd descriptor, size_t span_bytes);

  launch::UniqueFd descriptor_;
  std::byte* base_ = nullptr;
  size_t span_bytes_ = 0;
};

/// A heap on a mapping of this process. Its lists are private, so that no peer can spoil them. Thread-safe.
class Arena {
 public:
  explicit Arena(size_t span_bytes);

  const Mapping& mapping() const { return mapping_; }

  /// At least `bytes` bytes, aligned to 128; throws Error if memory is short.
  void* allocate(size_t bytes);
  /// What allocate() gave. Throws Error for anything else, a second time included.
  void deallocate(void* memory);
  /// Gives the memory of free blocks back to the system.
  void trim();

  /// Whether the memory lies in here.
  bool contains(const void* memory, size_t bytes) const {
    const auto* at = static_cast<const std::byte*>(memory);
    return at >= mapping_.base() && at + bytes <= mapping_.base() + mapping_.span_bytes();
  }
  size_t offset_of(const void* memory) const {
    return static_cast<size_t>(static_cast<const std::byte*>(memory) - mapping_.base());
  }
  size_t used_bytes() const;  ///< Allocated and not deallocated.
  size_t held_bytes() const;  ///< Taken from the system.

 private:
  struct Block {
    size_t bytes;
    bool backed;  ///< There is memory behind all of it.
  };
  using Blocks = std::map<size_t, Block>;  ///< By offset.

  void insert_free(size_t offset, Block block);
  void erase_free(Blocks::iterator block);

  mutable std::mutex mutex_;
  Mapping mapping_;
  Blocks used_;
  Blocks free_;                                      ///< Backed and not backed ones never merge.
  std::set<std::pair<size_t, size_t>> free_backed_;  ///< Bytes and offset: the best fit is found first.
  std::set<std::pair<size_t, size_t>> free_unbacked_;
  size_t used_bytes_ = 0;
  size_t held_bytes_ = 0;
};

}  // namespace lockstep::transport
