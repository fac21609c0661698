#include "transport/shared_group.h"

#include <fmt/format.h>
#include <sched.h>

#include <new>

#include "lockstep/error.h"
#include "transport/control.h"
#include "transport/fifo_transfer.h"

namespace lockstep::transport {

namespace {

/// Flags are compared as distances, so that they may wrap around.
bool reached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

}  // namespace

size_t SharedGroup::block_bytes(int world) {
  return sizeof(Block) + sizeof(Fifo) * kStreams * static_cast<size_t>(world);
}

const std::atomic<uint32_t>& SharedGroup::prepare(void* memory, int world, const GroupOptions& options) {
  auto* const block = new (memory) Block;
  for (auto& slot : block->slots) slot.flag.value = options.first_run * 4;
  for (int i = 0; i < kStreams * world; ++i) new (block->fifos() + i) Fifo;
  block->users = static_cast<uint32_t>(world);
  return block->users;
}

SharedGroup::SharedGroup(int rank, std::vector<Member> members, Arena& arena, const GroupOptions& options,
                         std::function<bool(int peer)> has_left)
    : Transport(rank, static_cast<int>(members.size())),
      members_(std::move(members)),
      arena_(arena),
      options_(options),
      has_left_(std::move(has_left)),
      run_(options.first_run),
      entered_(members_.size(), options.first_run),
      ends_(members_.size() * kStreams * 2) {
  for (uint64_t stream = 0; stream < kStreams; ++stream) {
    random_[stream].seed(options.delays.value_or(0) + static_cast<uint64_t>(rank) + 1000 * stream);
  }
  for (const auto& member : members_) {
    const auto peer = static_cast<int>(blocks_.size());
    if (member.block % alignof(Block) != 0 || member.block > member.span_bytes ||
        member.span_bytes - member.block < block_bytes(world())) {
      throw PeerError(
          fmt::format("shared memory: rank {} announced its block of {} bytes at offset {} of its "
                      "arena of {} bytes",
                      peer, block_bytes(world()), member.block, member.span_bytes),
          peer);
    }
    blocks_.push_back(reinterpret_cast<Block*>(member.base + member.block));
  }
  for (int stream = 0; stream < kStreams; ++stream) {
    for (int peer = 0; peer < world(); ++peer) {
      const auto from_to = [&](int from, int to) { return block_of(from).fifos() + stream * world() + to; };
      end_of(static_cast<Stream>(stream), peer, true).fifo = from_to(rank, peer);
      end_of(static_cast<Stream>(stream), peer, false).fifo = from_to(peer, rank);
    }
  }
}

SharedGroup::~SharedGroup() {
  if (getpid() != owner_) return;
  for (Block* block : blocks_) block->users.fetch_sub(1, std::memory_order_release);
}

std::unique_ptr<Transfer> SharedGroup::send(Stream stream, int to, const Header& header, const void* data,
                                            size_t bytes) {
  return std::make_unique<FifoTransfer>(*this, stream, to, header,
                                        FifoTransfer::Source{static_cast<const std::byte*>(data)}, bytes);
}

std::unique_ptr<Transfer> SharedGroup::receive(Stream stream, int from, const Header& header, void* data,
                                               size_t bytes) {
  return std::make_unique<FifoTransfer>(*this, stream, from, header,
                                        FifoTransfer::Destination{static_cast<std::byte*>(data)}, bytes);
}

void SharedGroup::withdraw() {
  block_of(rank()).withdrawn.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before anything that is stored there later
}

bool SharedGroup::has_withdrawn(int peer) {
  // As the reader of a sequence lock does: what was loaded before was there before the word was stored.
  std::atomic_thread_fence(std::memory_order_acquire);
  return block_of(peer).withdrawn.load(std::memory_order_relaxed) != 0;
}

void SharedGroup::begin(const Header& header, const Limit& limit) {
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank() || entered_[static_cast<size_t>(peer)] == run_) continue;
    wait_for_flag(peer, run_, 1, limit);
    check_header_of(
        peer);  // a plan that had no need to hear of the peer may have ended well beside another call
  }
  ++run_;
  raised_ = 0;
  header_ = header;
  Slot& slot = slot_of(rank(), run_);
  slot.header = header;
  slot.data = -1;
}

void SharedGroup::share(const void* data) {
  slot_of(rank(), run_).data = data == nullptr ? -1 : offset_of(data);
}

void SharedGroup::post() {
  slot_of(rank(), run_).flag.raise_to(run_ * 4 + ++raised_);
  settled_ = false;
}

void SharedGroup::settle() {
  if (!std::exchange(settled_, true)) slot_of(rank(), run_).flag.wake();
}

void SharedGroup::wait(int peer, int flag, const Limit& limit) {
  wait_for_flag(peer, run_, static_cast<uint32_t>(flag), limit);
  entered_[static_cast<size_t>(peer)] = run_;
  if (flag != 1) return;
  check_header_of(peer);
}

void SharedGroup::wait_for_flag(int peer, uint32_t run, uint32_t flag, const Limit& limit) {
  Signal& signal = slot_of(peer, run).flag;
  const uint32_t target = run * 4 + flag;
  // First a look, and only then the fence of settle(): meanwhile this rank's own flag is on its way.
  uint32_t seen = signal.value.load(std::memory_order_acquire);
  settle();
  if (reached(seen, target)) return check_flag(peer, run, seen);
  Patience patience(limit, options_.crowded);
  do {
    bool left = false;
    switch (patience.wait(signal, seen)) {
      case Patience::Verdict::kGoOn:
        break;
      case Patience::Verdict::kSlept:
        left = has_left_(peer);  // and a last look: it may have raised its flag before
        break;
      case Patience::Verdict::kFailed:
        throw Interrupted{};
      case Patience::Verdict::kTimedOut:
        throw TimeoutError(fmt::format("rank {} did not come", peer), peer);
    }
    seen = signal.value.load(std::memory_order_acquire);
    if (left && !reached(seen, target)) throw has_left_error(peer);
  } while (!reached(seen, target));
  check_flag(peer, run, seen);
}

void SharedGroup::check_flag(int peer, uint32_t run, uint32_t seen) {
  if (seen - run * 4 <= 3) return;
  throw PeerError(
      fmt::format("the flag of rank {} is {}, expected {} to {}; hint: a rank wrote past the end of a "
                  "buffer",
                  peer, seen, run * 4, run * 4 + 3),
      peer);
}

std::byte* SharedGroup::data_of(int peer, size_t bytes) {
  const int64_t offset = slot_of(peer, run_).data;
  return offset == -1 ? nullptr : reach(peer, offset, bytes);
}

std::byte* SharedGroup::reach(int peer, int64_t offset, size_t bytes) {
  const Member& member = members_[static_cast<size_t>(peer)];
  const auto begin = static_cast<size_t>(offset);
  if (offset < 0 || begin > member.span_bytes || member.span_bytes - begin < bytes) {
    throw PeerError(fmt::format("shared memory: {} bytes at offset {} of rank {}'s arena of {} bytes", bytes,
                                offset, peer, member.span_bytes),
                    peer);
  }
  return member.base + offset;
}

std::byte* SharedGroup::inbox_of(int peer) {
  return slot_of(peer, run_).inbox;
}

std::byte* SharedGroup::bounce_of(int peer) {
  return block_of(peer).bounce[run_ % 2];
}

void SharedGroup::check_header_of(int peer) {
  const Slot& slot = slot_of(peer, run_);
  if (!reached(slot.flag.value.load(std::memory_order_acquire), run_ * 4 + 1)) return;
  if (slot.header != header_) throw Mismatch{.peer = peer, .ours = header_, .theirs = slot.header};
}

bool SharedGroup::move_all(Stream stream) {
  const std::lock_guard lock(mutexes_[static_cast<size_t>(stream)]);
  auto& pending = pending_[static_cast<size_t>(stream)];
  bool moved = false;
  for (auto* transfer : pending) moved = transfer->move() || moved;
  std::erase_if(pending, [](const auto* transfer) { return transfer->done(); });
  return moved;
}

bool SharedGroup::delayed(Stream stream) {
  if (!options_.delays) return false;
  const uint64_t dice = random_[static_cast<size_t>(stream)]() % 8;
  if (dice < 2) sched_yield();
  return dice == 0;
}

}  // namespace lockstep::transport
