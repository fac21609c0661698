#include "transport/wired_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/error.h"
#include "transport/wired_transfer.h"

namespace lockstep::transport {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// A failure is noticed this late at most.
constexpr milliseconds kWaitSlice{20};
constexpr milliseconds kPollSlice{1};
// Who waits so long for a collective shows which one it is in.
constexpr milliseconds kLong{250};
// A rank that dies is soon known to all; one that left in good order is not.
constexpr milliseconds kExplanation{1000};
// What a rank sent before it left comes within this time, if its host is not cut off.
constexpr milliseconds kLastBytes{10'000};

// Channels of a group: for each stream one of envelopes and one of payloads, and one for its board; a power
// of two is easy to read in a trace.
constexpr uint64_t kChannels = 8;
constexpr uint64_t kBoard = kStreams;
constexpr uint64_t kPayloads = kBoard + 1;
static_assert(kPayloads + kStreams <= kChannels);

}  // namespace

WiredGroup::WiredGroup(Wire& wire, Control& control, int rank, std::vector<int> members, uint64_t number)
    : Transport(rank, static_cast<int>(members.size())),
      wire_(wire),
      control_(control),
      members_(std::move(members)),
      first_channel_(number * kChannels),
      lanes_(members_.size() * kStreams * 2),
      board_(wire, rank, members_, first_channel_ + kBoard) {}

WiredGroup::~WiredGroup() = default;

std::unique_ptr<Transfer> WiredGroup::send(Stream stream, int to, const Header& header, const void* data,
                                           size_t bytes) {
  return std::make_unique<WiredTransfer>(*this, true, stream, to, header, const_cast<void*>(data), bytes);
}

std::unique_ptr<Transfer> WiredGroup::receive(Stream stream, int from, const Header& header, void* data,
                                              size_t bytes) {
  return std::make_unique<WiredTransfer>(*this, false, stream, from, header, data, bytes);
}

uint64_t WiredGroup::payloads(Stream stream, const Header& header, size_t bytes) const {
  std::array<uint64_t, sizeof(Header) / sizeof(uint64_t)> words;
  std::memcpy(words.data(), &header, sizeof(Header));
  uint64_t mixed = bytes;
  for (const uint64_t word : words) {
    mixed = (mixed ^ word) * 0x9e3779b97f4a7c15U;  // Knuth's multiplicative hash
    mixed ^= mixed >> 32;
  }
  return mixed << 32 | (first_channel_ + kPayloads + static_cast<uint64_t>(stream));
}

std::unique_ptr<Wire::Post> WiredGroup::post(const WiredTransfer& transfer, uint64_t channel, void* data,
                                             size_t bytes) {
  const int peer = members_[static_cast<size_t>(transfer.peer_)];
  try {
    return transfer.sends_ ? wire_.send(peer, channel, data, bytes)
                           : wire_.receive(peer, channel, data, bytes);
  } catch (const Wire::Broken& broken) {
    explain(transfer.peer_, broken);
  }
}

bool WiredGroup::look(Wire::Post& post, int peer, nanoseconds patience) {
  try {
    return post.wait_for(patience);
  } catch (const Wire::Broken& broken) {
    explain(peer, broken);
  }
}

uint64_t WiredGroup::moved_on(Lane& lane, int& looks) {
  const std::lock_guard lock(lane.mutex);
  uint64_t sum = lane.ended << 32;
  if (looks > 0 && !lane.transfers.empty()) {
    --looks;
    try {
      static_cast<void>(lane.transfers[lane.looked++ % lane.transfers.size()]->is_gone(nanoseconds(0)));
    } catch (const Wire::Broken&) {
      // Whoever waits for it finds out.
    }
  }
  for (auto* const transfer : lane.transfers) sum += transfer->count();
  return sum;
}

uint64_t WiredGroup::moved_for(WiredTransfer& transfer) {
  int looks = 2;  // each may cost as much as a switch between threads
  if (transfer.stream_ == Stream::kPointToPoint) {
    // Both ways: on one connection, what lets the peer send waits behind what this rank sends.
    return moved_on(lane(transfer.stream_, transfer.peer_, false), looks) +
           moved_on(lane(transfer.stream_, transfer.peer_, true), looks);
  }
  const auto lanes = static_cast<size_t>(world()) * 2;
  uint64_t sum = 0;
  for (size_t k = 0, turn = looked_at_; k < lanes; ++k) {
    const size_t at = (turn + k) % lanes;
    const bool may_look = looks > 0;
    sum += moved_on(lanes_[static_cast<size_t>(transfer.stream_) * lanes + at], looks);
    if (may_look) looked_at_ = at + 1;
  }
  return sum;
}

void WiredGroup::await(WiredTransfer& transfer, const Limit& limit) {
  // Nobody waits for what is moved in the background: no hurry, and no core for it.
  const bool polls = limit.in_background && wire_.moves_in_calls_only();
  const nanoseconds slice = std::min<nanoseconds>(polls ? kPollSlice : kWaitSlice, limit.timeout);
  const int peer = transfer.peer_;
  auto moved_at = Control::Clock::now();
  std::optional<Control::Clock::time_point> left;
  std::optional<uint64_t> moved;
  bool late = false;
  while (!transfer.is_over(polls ? nanoseconds(0) : slice)) {
    if (polls) std::this_thread::sleep_for(slice);
    if (limit.failed->load(std::memory_order_acquire)) throw Interrupted{};
    const auto now = Control::Clock::now();
    const uint64_t now_moved = moved_for(transfer);
    if (moved && *moved != now_moved) {
      moved_at = now;
      late = false;
      left.reset();
    }
    moved = now_moved;
    if (transfer.stream_ == Stream::kCollective) {
      if (looked_in_ != transfer.header_.call) looked_in_ = transfer.header_.call, looked_ = now;
      if (now - looked_ >= kLong) {
        looked_ = now;
        moved_at = std::max(moved_at, board_.look(transfer.header_, peer, moved_at));
      }
    }
    const auto idle = now - moved_at;
    // This process may have been stopped since its last look: another one.
    if (idle >= limit.timeout && std::exchange(late, true)) {
      const char* const verb = transfer.sends_ ? "receive" : "send";
      const int awaited = transfer.stream_ == Stream::kCollective ? board_.awaited_through(peer) : peer;
      throw TimeoutError(awaited == peer ? fmt::format("rank {} did not {}", peer, verb)
                                         : fmt::format("rank {} did not {}: it waits for rank {}, which did "
                                                       "not respond",
                                                       peer, verb, awaited),
                         awaited);
    }
    // Another connection says so: what was sent before may still be on its way.
    if (idle >= kLong && control_.has_left(members_[static_cast<size_t>(peer)])) {
      if (!left) left = now;
      if (now - *left >= kLastBytes) throw has_left_error(peer);
    }
  }
}

void WiredGroup::explain(int peer, const Wire::Broken& broken) {
  const auto deadline = Control::Clock::now() + kExplanation;
  while (!control_.has_failed() && Control::Clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(2));
  }
  if (control_.has_failed()) throw Interrupted{};
  throw PeerError(
      fmt::format("the connection to rank {} has ended: {}; hint: that rank has left before this call, or "
                  "the network between the two broke",
                  peer, broken.why),
      peer);
}

}  // namespace lockstep::transport
