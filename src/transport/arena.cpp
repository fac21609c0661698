#include "transport/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

constexpr size_t kPage = Mapping::kPage;
constexpr auto kLookInterval = std::chrono::seconds(1);
constexpr size_t kShortFraction =
    16;  // less than 1/16 of the limit is left: others need it more than our cache

/// Block sizes of the classes, in units of the least block: at most a quarter is wasted, an eighth above 1
/// KiB.
constexpr std::array<uint8_t, 16> kClassUnits = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32};

constexpr size_t kMostUnits = kClassUnits.back();

constexpr std::array<uint8_t, kMostUnits + 1> kClassOfUnits = [] {
  std::array<uint8_t, kMostUnits + 1> classes = {};
  for (size_t units = 0, k = 0; units <= kMostUnits; ++units) {
    if (units > kClassUnits[k]) ++k;
    classes[units] = static_cast<uint8_t>(k);
  }
  return classes;
}();

}  // namespace

int Arena::class_of(size_t bytes) {
  return kClassOfUnits[(bytes + kLeastBlock - 1) / kLeastBlock];
}

size_t Arena::block_bytes(int block_class) {
  return kClassUnits[static_cast<size_t>(block_class)] * kLeastBlock;
}

void Arena::Free::operator()(PageInfo* table) const {
  std::free(table);  // NOLINT(cppcoreguidelines-no-malloc): as it was allocated
}

Arena::Arena(size_t span_bytes)
    : pages_(span_bytes),
      // calloc: pages of the table that are never written take no memory.
      table_(static_cast<PageInfo*>(std::calloc(mapping().span_bytes() / kPage, sizeof(PageInfo)))) {
  static_assert(kClasses == kClassUnits.size());
  if (table_ == nullptr) throw Error("shared memory: no memory for the table of its pages");
}

void* Arena::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (retired_) return nullptr;
  if (bytes > mapping().span_bytes()) {
    throw Error(fmt::format(
        "shared memory: {} bytes asked for, one rank can share {} here; hint: memory, the number of ranks, "
        "ulimit -v and ulimit -f limit it",
        bytes, mapping().span_bytes()));
  }
  void* const memory = bytes <= kMostUnits * kLeastBlock ? allocate_block(class_of(bytes))
                                                         : allocate_run((bytes + kPage - 1) / kPage);
  use_.used_bytes += bytes_at(table_[offset_of(memory) / kPage]);
  use_.peak_used_bytes = std::max(use_.peak_used_bytes, use_.used_bytes);
  return memory;
}

void Arena::deallocate(void* memory) {
  const std::lock_guard lock(mutex_);
  deallocate_locked(memory);
}

void Arena::deallocate_when_unused(void* memory, const std::atomic<uint32_t>& users) {
  const std::lock_guard lock(mutex_);
  deallocate_unused();
  lent_.push_back({memory, &users});
}

void Arena::deallocate_unused() {
  std::erase_if(lent_, [&](const Lent& lent) {
    if (lent.users->load(std::memory_order_acquire) != 0) return false;
    deallocate_locked(lent.memory);
    return true;
  });
}

void Arena::deallocate_locked(void* memory) {
  const size_t offset = offset_of(memory);
  const PageInfo page = contains(memory, 1) ? table_[offset / kPage] : PageInfo{};
  const bool known = page.kind == PageKind::kSlab || (page.kind == PageKind::kRun && offset % kPage == 0);
  if (!known) {
    throw Error("shared memory: a block is freed that was not allocated, or has been freed before");
  }
  const size_t used_bytes = bytes_at(page);
  if (page.kind == PageKind::kSlab) {
    deallocate_block(page.value, offset);
  } else {
    deallocate_run(offset / kPage);
  }
  use_.used_bytes -= used_bytes;
  if (retired_) flush_and_trim();  // nobody will ask for it
}

size_t Arena::bytes_at(const PageInfo& page) const {
  return page.kind == PageKind::kSlab ? block_bytes(slabs_[page.value].block_class) : page.value * kPage;
}

void* Arena::allocate_block(int block_class) {
  auto& open = open_slabs_[static_cast<size_t>(block_class)];
  if (open.empty()) {
    const size_t first = take_pages(kSlabPages);
    if (unused_slabs_.empty()) {
      unused_slabs_.push_back(static_cast<uint32_t>(slabs_.size()));
      slabs_.emplace_back();
    }
    const uint32_t index = unused_slabs_.back();
    unused_slabs_.pop_back();
    const auto blocks = static_cast<uint32_t>(kSlabPages * kPage / block_bytes(block_class));
    slabs_[index] = {
        .first_page = first, .block_class = block_class, .blocks = blocks, .free_blocks = blocks, .used = {}};
    std::fill_n(&table_[first], kSlabPages, PageInfo{PageKind::kSlab, index});
    open.push_back(index);
  }
  Slab& slab = slabs_[open.back()];
  // There is a free block, and blocks are found from the first on: bits behind the last one are never
  // reached.
  size_t word = 0;
  while (slab.used[word] == ~uint64_t{0}) ++word;
  const auto bit = static_cast<size_t>(std::countr_one(slab.used[word]));
  slab.used[word] |= uint64_t{1} << bit;
  if (--slab.free_blocks == 0) open.pop_back();
  return address_of(slab.first_page) + (word * 64 + bit) * block_bytes(block_class);
}

void Arena::deallocate_block(uint32_t index, size_t offset) {
  Slab& slab = slabs_[index];
  const size_t within = offset - slab.first_page * kPage;
  const size_t block = within / block_bytes(slab.block_class);
  const uint64_t bit = uint64_t{1} << (block % 64);
  if (within % block_bytes(slab.block_class) != 0 || (slab.used[block / 64] & bit) == 0) {
    throw Error("shared memory: a block is freed that was not allocated, or has been freed before");
  }
  slab.used[block / 64] &= ~bit;
  if (++slab.free_blocks == 1) open_slabs_[static_cast<size_t>(slab.block_class)].push_back(index);
}

void* Arena::allocate_run(size_t pages) {
  size_t first = 0;
  if (pages <= kMostCachedPages && !cached_[pages].empty()) {
    first = cached_[pages].back();
    cached_[pages].pop_back();
  } else {
    first = take_pages(pages);
  }
  table_[first] = {PageKind::kRun, static_cast<uint32_t>(pages)};
  return address_of(first);
}

void Arena::deallocate_run(size_t first) {
  const size_t pages = table_[first].value;
  if (pages <= kMostCachedPages) {
    table_[first].kind = PageKind::kCachedRun;
    cached_[pages].push_back(first);
  } else {
    table_[first] = {};
    pages_.deallocate(first, pages);
  }
  trim_under_pressure();
}

size_t Arena::take_pages(size_t pages) {
  deallocate_unused();
  if (!pages_.has(pages)) flush();
  try {
    return pages_.allocate(pages);
  } catch (const Error&) {
    flush_and_trim();
    return pages_.allocate(pages);
  }
}

void Arena::flush() {
  for (size_t pages = 1; pages < cached_.size(); ++pages) {
    for (const size_t first : cached_[pages]) {
      table_[first] = {};
      pages_.deallocate(first, pages);
    }
    cached_[pages].clear();
  }
  for (auto& open : open_slabs_) {
    std::erase_if(open, [&](uint32_t index) {
      const Slab& slab = slabs_[index];
      if (slab.free_blocks < slab.blocks) return false;
      std::fill_n(&table_[slab.first_page], kSlabPages, PageInfo{});
      pages_.deallocate(slab.first_page, kSlabPages);
      unused_slabs_.push_back(index);
      return true;
    });
  }
}

void Arena::flush_and_trim() {
  if (in_child_) return;
  flush();
  pages_.trim();
}

void Arena::trim_under_pressure() {
  const auto now = Clock::now();
  if (now - looked_ < kLookInterval) return;
  looked_ = now;
  const MemoryLeft left = memory_left();
  if (left.bytes < left.limit_bytes / kShortFraction) flush_and_trim();
}

void Arena::trim() {
  const std::lock_guard lock(mutex_);
  deallocate_unused();
  flush_and_trim();
}

void Arena::retire() {
  const std::lock_guard lock(mutex_);
  retired_ = true;
  flush_and_trim();
}

bool Arena::is_retired() const {
  const std::lock_guard lock(mutex_);
  return retired_;
}

Arena::Use Arena::use() {
  const std::lock_guard lock(mutex_);
  deallocate_unused();
  Use use = use_;
  use.held_bytes = pages_.held_pages() * kPage;
  return use;
}

void Arena::restart_peak() {
  const std::lock_guard lock(mutex_);
  use_.peak_used_bytes = use_.used_bytes;
}

void Arena::become_private_in_child() {
  if (in_child_) return;  // a grandchild has a copy of it
  retired_ = true;
  in_child_ = true;
  pages_.mapping().map_private_in_child();
}

}  // namespace lockstep::transport
