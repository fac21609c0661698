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

bool same_file(int one, int other) {
  struct stat first {};
  struct stat second {};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

LiveOutput::LiveOutput() : same_(same_file(STDOUT_FILENO, STDERR_FILENO)) {}

void LiveOutput::add(int fd, std::string_view lines) {
  if (gone_[fd] || lines.empty()) return;
  queued_bytes_ += lines.size();
  auto& pieces = queue_of(fd).pieces;
  // A piece takes more only if nothing was added for the other descriptor since: the order would be lost.
  if (!pieces.empty() && pieces.back().number == added_ && pieces.back().fd == fd) {
    pieces.back().text += lines;
  } else {
    pieces.push_back({++added_, fd, std::string(lines)});
  }
}

void LiveOutput::drop() {
  for (auto& queue : queues_) queue.pieces.clear();
  queued_bytes_ = 0;
}

bool LiveOutput::waits_for(int fd) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const Queue& queue) {
    return !queue.pieces.empty() && queue.pieces.front().fd == fd;
  });
}

size_t LiveOutput::bytes_for(int fd) const {
  size_t bytes = 0;
  for (const auto& queue : queues_) {
    for (const auto& piece : queue.pieces) bytes += piece.fd == fd ? piece.text.size() - piece.written : 0;
  }
  return bytes;
}

LiveOutput::Queue* LiveOutput::oldest() {
  Queue* found = nullptr;
  for (auto& queue : queues_) {
    if (queue.blocked || queue.pieces.empty()) continue;
    if (found == nullptr || queue.pieces.front().number < found->pieces.front().number) found = &queue;
  }
  return found;
}

void LiveOutput::take_front(Queue& queue) {
  queued_bytes_ -= queue.pieces.front().text.size();
  queue.pieces.pop_front();
}

bool LiveOutput::flush() {
  bool wrote = false;
  for (auto& queue : queues_) queue.blocked = false;
  while (Queue* queue = oldest()) {
    Piece& piece = queue->pieces.front();
    const size_t room = room_in(piece.fd);
    const ssize_t written = room == 0 ? 0
                                      : write(piece.fd, piece.text.data() + piece.written,
                                              std::min(room, piece.text.size() - piece.written));
    if (room == 0 || (written < 0 && (errno == EINTR || errno == EAGAIN))) {
      queue->blocked = true;
      continue;
    }
    if (written < 0) {
      gone_[piece.fd] = true;
      if (errno != EPIPE && errno != EBADF) lost_[piece.fd] = errno;
      take_front(*queue);
      continue;
    }
    wrote = true;
    piece.written += static_cast<size_t>(written);
    if (piece.written == piece.text.size()) take_front(*queue);
  }
  return wrote;
}

}  // namespace lockstep::launch
