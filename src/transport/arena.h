#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/page_heap.h"

namespace lockstep::transport {

/// A caching heap in memory that peers can map. Freed memory is kept, so that a program that asks for the
/// same sizes again and again, as training does, soon asks the system for nothing.
///
/// Up to 4 KiB, blocks of one size share a *slab* of 64 KiB; larger ones are runs of pages, and those up to
/// 1 MiB are kept by size for the next who asks. All lists are private to this process. Thread-safe.
class Arena {
 public:
  explicit Arena(size_t span_bytes);

  const Mapping& mapping() const { return pages_.mapping(); }

  /// At least `bytes` bytes, aligned to 128; null if the arena is retired. Throws Error if memory is short.
  void* allocate(size_t bytes);
  /// What allocate() gave. Throws Error for anything else, a second time included.
  void deallocate(void* memory);
  /// Deallocates a block that peers use, once `users`, which lies in it, is 0.
  void deallocate_when_unused(void* memory, const std::atomic<uint32_t>& users);
  /// Gives what is free back to the system.
  void trim();

  /// From now on nothing is given out, and nothing that is freed is used again: a late peer may still write
  /// to it.
  void retire();
  bool is_retired() const;

  /// Whether the memory lies in here.
  bool contains(const void* memory, size_t bytes) const {
    const auto* at = static_cast<const std::byte*>(memory);
    return at >= mapping().base() && at + bytes <= mapping().base() + mapping().span_bytes();
  }
  size_t offset_of(const void* memory) const {
    return static_cast<size_t>(static_cast<const std::byte*>(memory) - mapping().base());
  }

  struct Use {
    size_t used_bytes = 0;       ///< Allocated and not deallocated.
    size_t peak_used_bytes = 0;  ///< The most so far.
    size_t held_bytes = 0;       ///< Taken from the system.
  };
  Use use();
  /// peak_used_bytes counts from now on.
  void restart_peak();

  /// Round a fork: nobody is within while it happens, and the child keeps a view of its own.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  /// Between the two, in the child: what lies here can be read, stores stay the child's own, nothing new is
  /// given out.
  void become_private_in_child();

 private:
  using Clock = std::chrono::steady_clock;
  enum class PageKind : uint8_t { kNone, kRun, kCachedRun, kSlab };
  /// Of the first page of a run, and of every page of a slab.
  struct PageInfo {
    PageKind kind;
    uint32_t value;  ///< Pages of the run; index of the slab.
  };
  static constexpr size_t kSlabPages = 16;
  static constexpr size_t kMostCachedPages = (size_t{1} << 20) / Mapping::kPage;
  static constexpr size_t kLeastBlock = 128;  // two cache lines: neighbours are fetched together
  static constexpr int kClasses = 16;
  struct Slab {
    size_t first_page;
    int block_class;
    uint32_t blocks;
    uint32_t free_blocks;
    std::array<uint64_t, kSlabPages * Mapping::kPage / kLeastBlock / 64> used;  ///< A bit for each block.
  };

  static int class_of(size_t bytes);
  static size_t block_bytes(int block_class);

  void* allocate_block(int block_class);
  void deallocate_block(uint32_t index, size_t offset);
  void* allocate_run(size_t pages);
  void deallocate_run(size_t first);
  /// From the heap of pages; if it has none, what is kept here, then what is free there, gives way first.
  size_t take_pages(size_t pages);
  /// What is kept goes back to the heap of pages, where neighbours become one.
  void flush();
  void flush_and_trim();
  void deallocate_locked(void* memory);
  void deallocate_unused();
  void trim_under_pressure();
  /// What lies at this page, as a caller's bytes.
  size_t bytes_at(const PageInfo& page) const;
  std::byte* address_of(size_t page) const { return mapping().base() + page * Mapping::kPage; }

  mutable std::mutex mutex_;
  PageHeap pages_;
  struct Free {
    void operator()(PageInfo* table) const;
  };
  std::unique_ptr<PageInfo[], Free> table_;  ///< By page; takes memory only where it is used.
  std::deque<Slab> slabs_;
  std::vector<uint32_t> unused_slabs_;                            ///< Indices that can be used again.
  std::array<std::vector<uint32_t>, kClasses> open_slabs_;        ///< Those with free blocks.
  std::array<std::vector<size_t>, kMostCachedPages + 1> cached_;  ///< First pages of runs, by length.
  struct Lent {
    void* memory;
    const std::atomic<uint32_t>* users;
  };
  std::vector<Lent> lent_;
  bool retired_ = false;
  bool in_child_ = false;  ///< What is given back would be the parent's.
  Use use_;
  Clock::time_point looked_ = {};  ///< When memory was last found to be enough.
};

}  // namespace lockstep::transport
