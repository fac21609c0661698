#include "transport/fifo_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/error.h"
#include "transport/control.h"

namespace lockstep::transport {

int64_t FifoTransfer::place_of(const SharedGroup& group, const std::variant<Source, Destination>& data,
                               size_t bytes) {
  const auto* const source = std::get_if<Source>(&data);
  if (source == nullptr || bytes < kByPlaceBytes || !group.contains(source->data, bytes)) return -1;
  return static_cast<int64_t>(group.arena_.offset_of(source->data));
}

FifoTransfer::FifoTransfer(SharedGroup& group, Stream stream, int peer, const Header& header,
                           std::variant<Source, Destination> data, size_t bytes)
    : group_(group),
      stream_(stream),
      peer_(peer),
      data_(data),
      bytes_(bytes),
      end_(group.end_of(stream, peer, std::holds_alternative<Source>(data))),
      preamble_{header, bytes, place_of(group, data, bytes)},
      expected_(header) {
  {
    const std::lock_guard lock(group_.mutexes_[static_cast<size_t>(stream_)]);
    ticket_ = end_.tickets++;
    group_.pending_[static_cast<size_t>(stream_)].push_back(this);
  }
  group_.move_all(stream_);
}

FifoTransfer::~FifoTransfer() {
  const std::lock_guard lock(group_.mutexes_[static_cast<size_t>(stream_)]);
  std::erase(group_.pending_[static_cast<size_t>(stream_)], this);
}

bool FifoTransfer::test() {
  if (!done()) group_.move_all(stream_);
  if (!done()) return false;
  throw_if_bad();
  return true;
}

void FifoTransfer::wait(const Limit& limit) {
  Signal& bell = group_.block_of(group_.rank()).bell;
  Patience patience(limit, group_.options_.crowded);
  bool left = false;
  for (;;) {
    const uint32_t seen = bell.value.load(std::memory_order_acquire);
    const bool moved = group_.move_all(stream_);
    if (done()) return throw_if_bad();
    if (moved) {
      patience.reset();
      continue;
    }
    if (left) throw has_left_error(peer_);
    switch (patience.wait(bell, seen)) {
      case Patience::Verdict::kGoOn:
        break;
      case Patience::Verdict::kSlept:
        left = group_.has_left_(peer_);  // and a last look
        break;
      case Patience::Verdict::kFailed:
        throw Interrupted{};
      case Patience::Verdict::kTimedOut:
        throw TimeoutError(fmt::format("rank {} did not {}", peer_, sends() ? "receive" : "send"), peer_);
    }
    if (stream_ == Stream::kCollective) group_.check_header_of(peer_);
  }
}

void FifoTransfer::throw_if_bad() const {
  switch (how_) {
    case End::kWell:
      return;
    case End::kMismatched:
      throw Mismatch{.peer = peer_, .ours = expected_, .theirs = preamble_.header};
    case End::kWithdrawn:
      throw PeerError(fmt::format("rank {} gave up while its message was read", peer_), peer_);
    case End::kNowhere:
      throw PeerError(fmt::format("rank {} names memory outside of its arena", peer_), peer_);
  }
}

bool FifoTransfer::needs_company() const {
  const std::lock_guard lock(group_.mutexes_[static_cast<size_t>(stream_)]);
  return !done() && written_ == 0;  // once it is written, its receiver does the rest
}

bool FifoTransfer::move() {
  if (done()) return false;
  if (written_ != 0) return look_for_receipt();
  if (end_.serving != ticket_) return false;
  if (group_.delayed(stream_)) return true;
  return sends() ? write() : read();
}

bool FifoTransfer::write() {
  size_t moved = 0;
  if (moved_ < sizeof(Preamble)) {
    moved =
        end_.fifo->write(reinterpret_cast<const std::byte*>(&preamble_) + moved_, sizeof(Preamble) - moved_);
    moved_ += moved;
  }
  if (moved_ >= sizeof(Preamble)) {
    const size_t at = moved_ - sizeof(Preamble);
    const size_t payload = end_.fifo->write(std::get<Source>(data_).data + at, streamed_bytes() - at);
    moved_ += payload;
    moved += payload;
  }
  if (moved > 0) group_.block_of(peer_).bell.ring();
  if (moved_ == sizeof(Preamble) + streamed_bytes()) {
    written_ = end_.fifo->written.load(std::memory_order_relaxed);
    ++end_.serving;  // the next message need not wait for this one's receipt
    look_for_receipt();
  }
  return moved > 0 || done();
}

bool FifoTransfer::look_for_receipt() {
  const bool must_be_received = group_.options_.rendezvous || preamble_.place >= 0;
  const bool is_received = end_.fifo->read.load(std::memory_order_acquire) >= written_;
  if (must_be_received && !is_received) return false;
  done_.store(true, std::memory_order_release);
  return true;
}

bool FifoTransfer::read() {
  size_t moved = 0;
  if (moved_ < sizeof(Preamble)) {
    moved = end_.fifo->take(reinterpret_cast<std::byte*>(&preamble_) + moved_, sizeof(Preamble) - moved_);
    moved_ += moved;
    if (moved_ < sizeof(Preamble)) return moved > 0;
    if (preamble_.header != expected_ || preamble_.bytes != bytes_) {
      how_ = End::kMismatched;
    } else if (preamble_.place >= 0) {
      copy_from_place();
    }
    if (how_ != End::kWell) {
      finish();  // its payload stays where it is: the job has failed
      return true;
    }
  }
  const size_t at = moved_ - sizeof(Preamble);
  std::byte token;
  std::byte* const to = preamble_.place < 0 ? std::get<Destination>(data_).data + at : &token;
  const size_t streamed = end_.fifo->take(to, streamed_bytes() - at);
  moved_ += streamed;
  moved += streamed;
  if (moved > 0) group_.block_of(peer_).bell.ring();
  if (moved_ == sizeof(Preamble) + streamed_bytes()) finish();
  return moved > 0 || done();
}

void FifoTransfer::copy_from_place() {
  const auto& sender = group_.members_[static_cast<size_t>(peer_)];
  const auto place = static_cast<size_t>(preamble_.place);
  if (place > sender.span_bytes || sender.span_bytes - place < bytes_) {
    how_ = End::kNowhere;
    return;
  }
  std::memcpy(std::get<Destination>(data_).data, sender.base + place, bytes_);
  if (group_.has_withdrawn(peer_)) how_ = End::kWithdrawn;
}

void FifoTransfer::finish() {
  ++end_.serving;
  done_.store(true, std::memory_order_release);
}

}  // namespace lockstep::transport
