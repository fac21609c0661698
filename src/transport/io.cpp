#include "transport/io.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <system_error>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

int poll_ms(Deadline deadline) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(1);
  const auto now = Control::Clock::now();
  if (deadline <= now) return 0;
  if (deadline - now > kMost) return static_cast<int>(kMost.count());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count());
}

bool wait_for(int fd, short events, Deadline deadline) {
  pollfd waiting{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int ms = poll_ms(deadline);
    const int found = poll(&waiting, 1, ms);
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) throw Error("poll: " + error_text(errno));
    if (found == 0 && ms == 0) return false;
  }
}

bool Backoff::wait() {
  constexpr int kMostMs = 50;
  const int left_ms = poll_ms(deadline_);
  if (left_ms == 0) return false;
  poll(nullptr, 0, std::min(ms_, left_ms));  // a signal that ends it early does no harm
  ms_ = std::min(2 * ms_, kMostMs);
  return true;
}

Delivery send_all(int socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (would_block(errno)) {
      if (!wait_for(socket, POLLOUT, deadline)) return Delivery::kTimeout;
    } else if (errno != EINTR) {
      return Delivery::kClosed;
    }
  }
  return Delivery::kDone;
}

Delivery receive_exactly(int socket, std::size_t size, std::string& bytes, Deadline deadline) {
  bytes.resize(size);
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = recv(socket, bytes.data() + have, size - have, MSG_DONTWAIT);
    if (got > 0) {
      have += static_cast<std::size_t>(got);
    } else if (got < 0 && would_block(errno)) {
      if (!wait_for(socket, POLLIN, deadline)) return Delivery::kTimeout;
    } else if (got == 0 || errno != EINTR) {
      return Delivery::kClosed;
    }
  }
  return Delivery::kDone;
}

Waker::Waker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw Error("eventfd: " + error_text(errno));
}

void Waker::wake() const {
  const std::uint64_t one = 1;
  while (write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Waker::clear() const {
  std::uint64_t count = 0;
  while (read(fd_.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

std::string seconds_text(Control::Clock::duration duration) {
  const double tenths = std::round(std::chrono::duration<double>(duration).count() * 10);
  return fmt::format("{} s", std::max(0.0, tenths / 10));
}

std::string error_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace lockstep::transport
