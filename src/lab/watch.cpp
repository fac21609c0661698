#include "lab/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/error.h"

namespace lockstep::lab {

namespace {

/// Editors save in several steps: what counts is the last.
constexpr int kQuietMs = 200;
/// How often a signal that came between two waits is noticed.
constexpr int kLookMs = 500;

/// Whether something was saved among the events that wait to be read: one more is not worth a check of its
/// own.
bool take_events(int fd) {
  alignas(inotify_event) char bytes[4096];
  bool is_saved = false;
  for (ssize_t count = 0; (count = read(fd, bytes, sizeof bytes)) > 0;) {
    for (const char* at = bytes; at < bytes + count;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(at);
      if (event->len > 0 && std::string_view(event->name).ends_with(".cpp")) is_saved = true;
      at += sizeof(inotify_event) + event->len;
    }
  }
  return is_saved;
}

}  // namespace

FileWatch::FileWatch(const std::filesystem::path& folder) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (!fd_ || inotify_add_watch(fd_.get(), folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO) < 0)
    throw Error(fmt::format("{}: cannot be watched: {}", folder.string(), std::strerror(errno)));
}

FileWatch::Event FileWatch::wait(bool keys, const std::function<bool()>& is_over) {
  bool is_saved = false;
  while (!is_over()) {
    pollfd polled[2] = {{fd_.get(), POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}};
    const int ready = poll(polled, 2, is_saved ? kQuietMs : kLookMs);
    if (ready == 0 && is_saved) return Event::kSaved;
    if (ready <= 0) continue;
    if (polled[1].revents != 0) return Event::kKey;
    if (take_events(fd_.get())) is_saved = true;
  }
  return Event::kEnd;
}

}  // namespace lockstep::lab
