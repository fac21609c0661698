#include "transport/star_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "transport/quiet_thread.h"

namespace lockstep::transport {

namespace {

constexpr std::chrono::seconds kLastWords{1};

}  // namespace

StarServer::StarServer(std::vector<Member> members)
    : gatherings_(static_cast<int>(members.size())), here_count_(members.size()) {
  const std::size_t limit = frame_limit(static_cast<int>(members.size()));
  seats_.reserve(members.size());
  for (Member& member : members) {
    seats_.push_back({.connection = Connection(std::move(member.socket), limit),
                      .process = std::move(member.process),
                      .who = std::move(member.who)});
  }
  thread_ = start_quiet_thread("ls-star", [this] { run(); });
}

StarServer::~StarServer() {
  stop_.store(true);
  waker_.wake();
  thread_.join();
}

bool StarServer::wait_until_empty(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_until(lock, deadline, [this] { return here_count_ == 0; });
}

void StarServer::run() {
  try {
    serve_until_stopped();
    finish();
  } catch (const std::exception&) {
    // Out of memory, say. To everybody rank 0 is gone then.
  }
  for (Seat& seat : seats_) {
    if (seat.here) dismiss(seat);
    seat.connection.close();
  }
}

void StarServer::serve_until_stopped() {
  while (!stop_.load()) {
    flush();
    std::vector<pollfd> watched = what_to_watch();
    if (poll(watched.data(), watched.size(), -1) < 0) {
      if (errno == EINTR) continue;
      throw Error("poll: " + error_text(errno));
    }
    if (watched[0].revents != 0) waker_.clear();
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      const bool process_ended = watched[2 + 2 * i].revents != 0;
      if (watched[1 + 2 * i].revents != 0 || process_ended) listen_to(static_cast<int>(i), process_ended);
    }
  }
}

/// The waker, then socket and process of every seat; poll() passes over negative descriptors.
std::vector<pollfd> StarServer::what_to_watch() const {
  std::vector<pollfd> watched = {{.fd = waker_.fd(), .events = POLLIN, .revents = 0}};
  for (const Seat& seat : seats_) {
    const bool is_open = seat.connection.is_open();
    const int events = POLLIN | (seat.connection.has_queued() ? POLLOUT : 0);
    watched.push_back(
        {.fd = is_open ? seat.connection.fd() : -1, .events = static_cast<short>(events), .revents = 0});
    watched.push_back({.fd = is_open ? seat.process.get() : -1, .events = POLLIN, .revents = 0});
  }
  return watched;
}

void StarServer::listen_to(int rank, bool process_ended) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (!seat.connection.is_open()) return;
  try {
    const auto incoming = seat.connection.receive([&](Message&& message) { handle(rank, message); });
    // What a process said before its end comes first.
    if (incoming == Connection::Incoming::kEnded ||
        (process_ended && incoming == Connection::Incoming::kNoMore)) {
      lose(rank, std::string(seat.connection.how_it_ended()));
    }
  } catch (const FrameError& error) {
    lose(rank,
         fmt::format("broke the control plane's protocol: {}; hint: do all ranks run the same Lockstep?",
                     error.what()));
  }
}

void StarServer::handle(int rank, const Message& message) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (!seat.here) throw FrameError("a message after the goodbye");
  if (const auto* gather = std::get_if<Gather>(&message)) {
    relay(rank, *gather);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    fail({failed->peer < static_cast<int>(seats_.size()) ? failed->peer : -1, failed->text, failed->timeout});
  } else if (std::holds_alternative<Goodbye>(message)) {
    say_goodbye(rank);
  } else {
    throw FrameError("a message that only rank 0 may send");
  }
}

void StarServer::relay(int rank, const Gather& gather) {
  if (const auto failure = gatherings_.give(rank, gather)) {
    fail(*failure);
    return;
  }
  const auto frame = std::make_shared<const std::string>(
      to_frame(Gathered{gather.tag, rank, group_of(gather.members), gather.blob}));
  for (const int member : gather.members) {
    Seat& seat = seats_[static_cast<std::size_t>(member)];
    if (member != rank && seat.here) seat.connection.queue(frame);
  }
}

void StarServer::say_goodbye(int rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  dismiss(seat);
  seat.connection.close();  // what was still to be sent, it does not want any more
  broadcast(Left{rank});
}

void StarServer::lose(int rank, const std::string& why) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (seat.here) {
    fail({rank, fmt::format("{} {}", seat.who, why)});
    seat.connection.flush();  // it may be alive and have broken the protocol only
    dismiss(seat);
  }
  seat.connection.close();
}

void StarServer::fail(const Failure& failure) {
  if (std::exchange(failed_, true)) return;
  broadcast(Failed{failure.peer, failure.text, failure.timed_out});
}

void StarServer::dismiss(Seat& seat) {
  seat.here = false;
  const std::lock_guard lock(mutex_);
  if (--here_count_ == 0) emptied_.notify_all();
}

void StarServer::broadcast(const Message& message) {
  const auto frame = std::make_shared<const std::string>(to_frame(message));
  for (Seat& seat : seats_) {
    if (seat.here) seat.connection.queue(frame);
  }
}

void StarServer::flush() {
  for (Seat& seat : seats_) seat.connection.flush();
}

/// Hears what was said before the end (rank 0's own client may have gone without a goodbye), and lets nobody
/// wait for a star that is no more.
void StarServer::finish() {
  for (std::size_t i = 0; i < seats_.size(); ++i) listen_to(static_cast<int>(i), false);
  fail({0, fmt::format("{} has left before the others; hint: leave() of rank 0 waits for them until its "
                       "deadline",
                       seats_[0].who)});
  const Deadline deadline = Control::Clock::now() + kLastWords;
  for (Seat& seat : seats_) {
    while (seat.here && seat.connection.is_open()) {
      seat.connection.flush();
      if (!seat.connection.has_queued() || !wait_for(seat.connection.fd(), POLLOUT, deadline)) break;
    }
  }
}

}  // namespace lockstep::transport
