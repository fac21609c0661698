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
  for (uint64_t last = moved();;) {
    const uint32_t seen = bell.value.load(std::memory_order_acquire);
    const bool any_moved = group_.move_all(stream_);
    if (done()) return throw_if_bad();
    const uint64_t now = moved();
    if (now != last || (any_moved && stream_ == Stream::kCollective)) {
      last = now;
      patience.reset();
      continue;
    }
    if (left) throw has_left_error(peer_);
    switch (patience.wait(bell, any_moved ? seen - 1 : seen)) {  // while others move it does not sleep
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
      throw PeerError(
          fmt::format("rank {} announced {} bytes at offset {} of its arena of {} bytes, expected {} bytes",
                      peer_, preamble_.bytes, preamble_.place,
                      group_.members_[static_cast<size_t>(peer_)].span_bytes, bytes_),
          peer_);
    case End::kCorrupt:
      throw PeerError(
          fmt::format("the fifo {} rank {} is corrupt: {} bytes written, {} read; hint: one of the two "
                      "ranks wrote past the end of a buffer",
                      sends() ? "to" : "from", peer_, end_.fifo->written.load(), end_.fifo->read.load()),
          peer_);
  }
}

uint64_t FifoTransfer::moved() {
  return end_.fifo->written.load(std::memory_order_relaxed) + end_.fifo->read.load(std::memory_order_relaxed);
}

bool FifoTransfer::needs_company() {
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

bool FifoTransfer::count(size_t bytes, size_t& moved) {
  if (bytes == Fifo::kCorrupt) {
    finish(End::kCorrupt);
    return false;
  }
  moved_ += bytes;
  moved += bytes;
  return true;
}

bool FifoTransfer::write() {
  size_t moved = 0;
  if (moved_ < sizeof(Preamble)) {
    const auto* const preamble = reinterpret_cast<const std::byte*>(&preamble_);
    if (!count(end_.fifo->write(preamble + moved_, sizeof(Preamble) - moved_), moved)) return true;
  }
  if (moved_ >= sizeof(Preamble)) {
    const size_t at = moved_ - sizeof(Preamble);
    if (!count(end_.fifo->write(std::get<Source>(data_).data + at, streamed_bytes() - at), moved))
      return true;
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
  if (group_.options_.rendezvous || preamble_.place >= 0) {
    const uint64_t read = end_.fifo->read.load(std::memory_order_acquire);
    if (end_.fifo->written.load(std::memory_order_relaxed) - read > Fifo::kBytes) {
      finish(End::kCorrupt);
      return true;
    }
    if (read < written_) return false;
  }
  finish();
  return true;
}

bool FifoTransfer::read() {
  size_t moved = 0;
  if (moved_ < sizeof(Preamble)) {
    auto* const preamble = reinterpret_cast<std::byte*>(&preamble_);
    if (!count(end_.fifo->take(preamble + moved_, sizeof(Preamble) - moved_), moved)) return true;
    if (moved_ < sizeof(Preamble)) return moved > 0;
    if (const End how = check_and_copy(); how != End::kWell) {
      finish(how);  // its payload stays where it is: the job has failed
      return true;
    }
  }
  const size_t at = moved_ - sizeof(Preamble);
  std::byte token;
  std::byte* const to = preamble_.place < 0 ? std::get<Destination>(data_).data + at : &token;
  if (!count(end_.fifo->take(to, streamed_bytes() - at), moved)) return true;
  if (moved > 0) group_.block_of(peer_).bell.ring();
  if (moved_ == sizeof(Preamble) + streamed_bytes()) finish();
  return moved > 0 || done();
}

FifoTransfer::End FifoTransfer::check_and_copy() {
  if (preamble_.header != expected_) return End::kMismatched;
  if (preamble_.bytes != bytes_ || preamble_.place < -1) return End::kNowhere;
  if (preamble_.place == -1) return End::kWell;
  const auto& sender = group_.members_[static_cast<size_t>(peer_)];
  const auto place = static_cast<size_t>(preamble_.place);
  if (place > sender.span_bytes || sender.span_bytes - place < bytes_) return End::kNowhere;
  std::memcpy(std::get<Destination>(data_).data, sender.base + place, bytes_);
  return group_.has_withdrawn(peer_) ? End::kWithdrawn : End::kWell;
}

void FifoTransfer::finish(End how) {
  how_ = how;
  if (written_ == 0) ++end_.serving;
  done_.store(true, std::memory_order_release);
}

}  // namespace lockstep::transport
