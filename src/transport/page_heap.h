#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "transport/mapping.h"

namespace lockstep::transport {

/// Runs of pages on a mapping of this process: the smallest free run that is large enough is cut, neighbours
/// that are free become one. Pages stay taken from the system until trim(). Its lists are private, so that no
/// peer can spoil them. Not thread-safe.
class PageHeap {
 public:
  explicit PageHeap(size_t span_bytes);

  Mapping& mapping() { return mapping_; }
  const Mapping& mapping() const { return mapping_; }

  /// Whether a run of so many pages can be had without asking the system.
  bool has(size_t pages) const { return free_backed_.lower_bound({pages, 0}) != free_backed_.end(); }
  /// The first page of a run; throws Error if memory is short.
  size_t allocate(size_t pages);
  void deallocate(size_t first, size_t pages);
  /// Gives free pages back to the system.
  void trim();

  size_t held_pages() const { return held_pages_; }  ///< Taken from the system.

 private:
  struct Run {
    size_t pages;
    bool backed;  ///< There is memory behind all of it.
  };
  using Runs = std::map<size_t, Run>;                  ///< By first page.
  using BySize = std::set<std::pair<size_t, size_t>>;  ///< Pages and first page: the best fit is found first.

  void insert(size_t first, Run run);
  void erase(Runs::iterator run);
  BySize& by_size(bool backed) { return backed ? free_backed_ : free_unbacked_; }

  Mapping mapping_;
  Runs free_;  ///< Backed and not backed ones never merge.
  BySize free_backed_;
  BySize free_unbacked_;
  size_t held_pages_ = 0;
};

}  // namespace lockstep::transport
