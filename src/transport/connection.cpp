#include "transport/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace lockstep::transport {

void Connection::close() {
  socket_.reset();
  outgoing_.clear();
  sent_ = 0;
}

void Connection::queue(std::shared_ptr<const std::string> frame) {
  if (is_open()) outgoing_.push_back(std::move(frame));
}

void Connection::flush() {
  while (!outgoing_.empty()) {
    const std::string_view rest = std::string_view(*outgoing_.front()).substr(sent_);
    const ssize_t sent = send(fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      note_break(errno);
      outgoing_.clear();
      sent_ = 0;
      return;
    }
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ == outgoing_.front()->size()) {
      outgoing_.pop_front();
      sent_ = 0;
    }
  }
}

Connection::Incoming Connection::receive(const std::function<void(Message&&)>& take) {
  constexpr int kTurns = 16;
  std::array<char, 65536> piece;  // NOLINT: filled by recv
  for (int turn = 0; turn < kTurns;) {
    const ssize_t got = recv(fd(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got == 0) return Incoming::kEnded;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Incoming::kNoMore;
      note_break(errno);
      return Incoming::kEnded;
    }
    parser_.feed({piece.data(), static_cast<std::size_t>(got)});
    while (auto message = parser_.next()) {
      take(std::move(*message));
      if (!is_open()) return Incoming::kNoMore;  // it was the last
    }
    ++turn;
  }
  return Incoming::kMore;
}

std::string_view Connection::how_it_ended() const {
  return is_answered_
             ? "is gone: its connection ended without a goodbye; hint: its own output tells why"
             : "does not answer any more; hint: its host is down, or the network between it and rank 0 broke";
}

/// The kernel tells each error once, to whoever sends or receives first.
void Connection::note_break(int error) {
  is_answered_ = is_answered_ && error != ETIMEDOUT && error != EHOSTUNREACH && error != ENETUNREACH;
}

}  // namespace lockstep::transport
