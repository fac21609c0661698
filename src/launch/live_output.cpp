#include "launch/live_output.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::launch {

namespace {

/// How many bytes `fd` takes now without blocking: a pipe or terminal that polls writable has room for
/// PIPE_BUF.
size_t room_in(int fd) {
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return SSIZE_MAX;
  pollfd waiter{.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&waiter, 1, 0) != 1) return 0;
  return PIPE_BUF;
}

}  // namespace

void LiveOutput::add(int fd, std::string_view lines) {
  if (gone_[fd] || lines.empty()) return;
  queued_bytes_ += lines.size();
  const bool joins = !queue_.empty() && queue_.back().fd == fd;
  if (joins) {
    queue_.back().text += lines;
  } else {
    queue_.push_back({fd, std::string(lines)});
  }
}

void LiveOutput::take_front() {
  queued_bytes_ -= queue_.front().text.size();
  queue_.pop_front();
}

void LiveOutput::flush() {
  while (!queue_.empty()) {
    Piece& piece = queue_.front();
    const size_t room = room_in(piece.fd);
    if (room == 0) return;
    const ssize_t written =
        write(piece.fd, piece.text.data() + piece.written, std::min(room, piece.text.size() - piece.written));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (written < 0) {
      gone_[piece.fd] = true;
      take_front();
      continue;
    }
    piece.written += static_cast<size_t>(written);
    if (piece.written == piece.text.size()) take_front();
  }
}

}  // namespace lockstep::launch
