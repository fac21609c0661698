#include "transport/page_heap.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

constexpr size_t kGrowth =
    (size_t{1} << 20) / Mapping::kPage;  // asking the system costs more than a little memory

}  // namespace

PageHeap::PageHeap(size_t span_bytes) : mapping_(Mapping::create(span_bytes)) {
  insert(0, {mapping_.span_bytes() / Mapping::kPage, false});
}

size_t PageHeap::allocate(size_t pages) {
  const bool backed = has(pages);
  const auto fit = by_size(backed).lower_bound({pages, 0});
  if (fit == by_size(backed).end()) {
    throw Error(
        fmt::format("shared memory: {} pages asked for, no free run of addresses is as long among {} pages",
                    pages, mapping_.span_bytes() / Mapping::kPage));
  }
  const auto [whole, first] = *fit;
  const size_t usable = backed ? whole : std::min(whole, std::max(pages, kGrowth));
  if (!backed) {
    mapping_.take(first * Mapping::kPage, usable * Mapping::kPage);
    held_pages_ += usable;
  }
  erase(free_.find(first));
  if (whole > usable) insert(first + usable, {whole - usable, false});
  if (usable > pages) insert(first + pages, {usable - pages, true});
  return first;
}

void PageHeap::deallocate(size_t first, size_t pages) {
  insert(first, {pages, true});
}

void PageHeap::trim() {
  for (const auto& [pages, first] : BySize(free_backed_)) {
    erase(free_.find(first));
    mapping_.give_back(first * Mapping::kPage, pages * Mapping::kPage);
    held_pages_ -= pages;
    insert(first, {pages, false});
  }
}

void PageHeap::insert(size_t first, Run run) {
  const auto next = free_.lower_bound(first);
  if (next != free_.end() && next->first == first + run.pages && next->second.backed == run.backed) {
    run.pages += next->second.pages;
    erase(next);
  }
  const auto after = free_.lower_bound(first);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.pages == first && before->second.backed == run.backed) {
      first = before->first;
      run.pages += before->second.pages;
      erase(before);
    }
  }
  free_.emplace(first, run);
  by_size(run.backed).emplace(run.pages, first);
}

void PageHeap::erase(Runs::iterator run) {
  by_size(run->second.backed).erase({run->second.pages, run->first});
  free_.erase(run);
}

}  // namespace lockstep::transport
