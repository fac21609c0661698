#include "transport/wired_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "lockstep/error.h"
#include "transport/wired_transfer.h"

namespace lockstep::transport {

namespace {

using std::chrono::milliseconds;

// A failure is noticed this late at most.
constexpr milliseconds kWaitSlice{20};
// Who waits so long for a collective shows which one it is in.
constexpr milliseconds kLong{250};
// A rank that dies is soon known to all; one that left in good order is not.
constexpr milliseconds kExplanation{1000};
// What a rank sent before it left comes within this time, if its host is not cut off.
constexpr milliseconds kLastBytes{10'000};

// Channels of a group: one for each stream, one for its board; a power of two is easy to read in a trace.
constexpr uint64_t kChannels = 4;
static_assert(kStreams < kChannels);

}  // namespace

WiredGroup::WiredGroup(Wire& wire, Control& control, int rank, std::vector<int> members, uint64_t number)
    : Transport(rank, static_cast<int>(members.size())),
      wire_(wire),
      control_(control),
      members_(std::move(members)),
      first_channel_(number * kChannels),
      lanes_(members_.size() * kStreams),
      board_(wire, rank, members_, first_channel_ + kStreams) {}

WiredGroup::~WiredGroup() = default;

bool WiredGroup::native_sum(float* data, int64_t count) {
  try {
    return wire_.native_sum(data, count, world());
  } catch (const Wire::Broken& broken) {
    if (control_.has_failed()) throw Interrupted{};
    throw PeerError(fmt::format("the engine's own all-reduce failed: {}", broken.why), -1);
  }
}

std::unique_ptr<Transfer> WiredGroup::send(Stream stream, int to, const Header& header, const void* data,
                                           size_t bytes) {
  auto transfer = std::make_unique<WiredSend>(*this, stream, to, header, data, bytes);
  transfer->release();
  return transfer;
}

std::unique_ptr<Transfer> WiredGroup::announce(Stream stream, int to, const Header& header, const void* data,
                                               size_t bytes) {
  constexpr size_t kLongBytes = size_t{128} << 10;
  if (bytes < kLongBytes) return send(stream, to, header, data, bytes);
  return std::make_unique<WiredSend>(*this, stream, to, header, data, bytes);
}

std::unique_ptr<Transfer> WiredGroup::receive(Stream stream, int from, const Header& header, void* data,
                                              size_t bytes) {
  return std::make_unique<WiredReceive>(*this, stream, from, header, data, bytes);
}

std::unique_ptr<Wire::Post> WiredGroup::post_send(Stream stream, int to, const void* data, size_t bytes) {
  try {
    return wire_.send(members_[static_cast<size_t>(to)], first_channel_ + static_cast<uint64_t>(stream), data,
                      bytes);
  } catch (const Wire::Broken& broken) {
    explain(to, broken);
  }
}

std::unique_ptr<Wire::Post> WiredGroup::post_receive(Stream stream, int from, void* data, size_t bytes) {
  try {
    return wire_.receive(members_[static_cast<size_t>(from)], first_channel_ + static_cast<uint64_t>(stream),
                         data, bytes);
  } catch (const Wire::Broken& broken) {
    explain(from, broken);
  }
}

void WiredGroup::await(Wire::Post& post, const Awaited& awaited, const Limit& limit) {
  try {
    const auto began = std::chrono::steady_clock::now();
    auto looked = began;
    std::optional<std::chrono::steady_clock::time_point> left;
    while (!post.wait_for(std::min<std::chrono::nanoseconds>(kWaitSlice, limit.timeout))) {
      if (limit.failed->load(std::memory_order_acquire)) throw Interrupted{};
      const auto now = std::chrono::steady_clock::now();
      if (now - began >= limit.timeout) {
        throw TimeoutError(fmt::format("rank {} did not {}", awaited.peer, awaited.act), awaited.peer);
      }
      if (now - looked < kLong) continue;
      looked = now;
      // Another connection says so: what was sent before may still be on its way.
      if (control_.has_left(members_[static_cast<size_t>(awaited.peer)])) {
        if (!left) left = now;
        if (now - *left >= kLastBytes) throw has_left_error(awaited.peer);
      }
      if (awaited.stream == Stream::kCollective) board_.look(awaited.header, awaited.peer);
    }
  } catch (const Wire::Broken& broken) {
    explain(awaited.peer, broken);
  }
}

bool WiredGroup::look_once(Wire::Post& post, int peer) {
  if (control_.has_failed()) throw Interrupted{};
  try {
    return post.wait_for(milliseconds(0));
  } catch (const Wire::Broken& broken) {
    explain(peer, broken);
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
