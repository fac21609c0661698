#include "transport/star_client.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include "launch/printable.h"
#include "lockstep/error.h"
#include "transport/gatherings.h"
#include "transport/quiet_thread.h"

namespace lockstep::transport {

StarClient::StarClient(int rank, int world, Member rank_0)
    : rank_(rank),
      world_(world),
      who_(std::move(rank_0.who)),
      connection_(std::move(rank_0.socket), frame_limit(world)),
      process_(std::move(rank_0.process)) {
  thread_ = start_quiet_thread("ls-control", [this] { run(); });
}

StarClient::~StarClient() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  waker_.wake();
  thread_.join();
}

std::vector<std::string> StarClient::all_gather(const std::string& tag, const std::vector<int>& members,
                                                const std::string& blob, Deadline deadline) {
  constexpr std::chrono::milliseconds kLastLook{250};
  check_gather(rank_, world_, tag, members, blob);
  const auto started = Control::Clock::now();
  const auto operation = [&] {
    return fmt::format("all_gather '{}' on rank {}", launch::printable(tag), rank_);
  };
  std::unique_lock lock(mutex_);
  if (failure_) failure_->raise();
  if (said_goodbye_) throw UsageError(operation() + ": this rank has left the job");
  Gathering& gathering = gatherings_[tag];
  if (std::exchange(gathering.is_waited_for, true)) {
    throw UsageError(operation() + ": another thread gathers by this tag; hint: a tag is used once");
  }
  send(Gather{tag, members, blob});
  gathering.given[rank_] = Gathered{tag, rank_, group_of(members), blob};
  std::vector<int> awaited;
  const auto is_decided = [&] {
    awaited = missing(members, gathering);
    return awaited.empty() || failure_ || said_goodbye_ || first_gone(awaited);
  };
  // If this process was stopped over the deadline, what came meanwhile is still to be read.
  const bool decided =
      changed_.wait_until(lock, deadline, is_decided) || changed_.wait_for(lock, kLastLook, is_decided);
  Gathering gathered = std::move(gathering);
  gatherings_.erase(tag);
  if (awaited.empty()) {
    std::vector<std::string> blobs;
    for (const int member : members) blobs.push_back(std::move(gathered.given[member].blob));
    return blobs;
  }
  given_up_.insert(tag);
  if (failure_) failure_->raise();
  if (const auto gone = first_gone(awaited)) {
    throw PeerError(fmt::format("{}: rank {} has left the job and gave nothing", operation(), *gone), *gone);
  }
  if (decided) throw UsageError(operation() + ": this rank has left the job meanwhile");
  throw TimeoutError(fmt::format("{}: {} did not come within {}; hint: do all members call it?", operation(),
                                 name_ranks(awaited), seconds_text(deadline - started)),
                     awaited.front());
}

/// The members that have not given. One that named other members has not, either: rank 0 will say so.
std::vector<int> StarClient::missing(const std::vector<int>& members, const Gathering& gathering) const {
  const std::uint64_t group = gathering.given.at(rank_).group;
  std::vector<int> found;
  for (const int member : members) {
    const auto given = gathering.given.find(member);
    if (given == gathering.given.end() || given->second.group != group) found.push_back(member);
  }
  return found;
}

/// One of them that has left and can give no more.
std::optional<int> StarClient::first_gone(const std::vector<int>& missing) const {
  const auto gone =
      std::find_if(missing.begin(), missing.end(), [this](int rank) { return left_.contains(rank); });
  return gone == missing.end() ? std::nullopt : std::optional(*gone);
}

void StarClient::fail(const Failure& failure) {
  // Rank 0 decides which failure was first, so that all ranks have the same. If it does not answer, this one.
  constexpr std::chrono::seconds kAnswer{1};
  std::unique_lock lock(mutex_);
  if (failure_) return;
  if (!ended_ && !said_goodbye_) {
    send(Failed{failure.peer, failure.text, failure.timed_out});
    changed_.wait_for(lock, kAnswer, [this] { return failure_ || ended_; });
  }
  set_failure(failure);
}

std::optional<Failure> StarClient::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool StarClient::has_left(int rank) const {
  const std::lock_guard lock(mutex_);
  return left_.contains(rank);
}

void StarClient::goodbye(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!std::exchange(said_goodbye_, true)) send(Goodbye{});
  changed_.notify_all();
  changed_.wait_until(lock, deadline, [this] { return ended_; });
}

/// With the mutex held, as are the following.
void StarClient::send(const Message& message) {
  to_send_.push_back(to_frame(message));
  waker_.wake();
}

void StarClient::set_failure(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  has_failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

/// The thread's last act: nobody may wait for more.
void StarClient::end() {
  connection_.close();
  const std::lock_guard lock(mutex_);
  if (!said_goodbye_ && !stop_) {
    set_failure({0, fmt::format("{} {}", who_, connection_.how_it_ended())});
  }
  ended_ = true;
  changed_.notify_all();
}

void StarClient::run() {
  try {
    serve_until_stopped();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    set_failure({0, fmt::format("the control plane of rank {} broke: {}", rank_, error.what())});
  }
  end();
}

void StarClient::serve_until_stopped() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      for (std::string& frame : to_send_) {
        connection_.queue(std::make_shared<const std::string>(std::move(frame)));
      }
      to_send_.clear();
      if (stop_) break;
    }
    connection_.flush();
    const int events = POLLIN | (connection_.has_queued() ? POLLOUT : 0);
    std::array<pollfd, 3> watched = {{
        {.fd = waker_.fd(), .events = POLLIN, .revents = 0},
        {.fd = connection_.fd(), .events = static_cast<short>(events), .revents = 0},
        {.fd = process_.get(), .events = POLLIN, .revents = 0},
    }};
    if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) {
      throw Error("poll: " + error_text(errno));
    }
    if (watched[0].revents != 0) waker_.clear();
    if ((watched[1].revents != 0 || watched[2].revents != 0) && !listen(watched[2].revents != 0)) return;
  }
  connection_.flush();  // a failure's text, say, if it fits
}

/// False when rank 0 has no more to say.
bool StarClient::listen(bool process_ended) {
  const auto incoming = connection_.receive([this](Message&& message) { handle(std::move(message)); });
  if (incoming == Connection::Incoming::kEnded) return false;
  return !(process_ended && incoming == Connection::Incoming::kNoMore);
}

void StarClient::handle(Message&& message) {
  const std::lock_guard lock(mutex_);
  if (auto* gathered = std::get_if<Gathered>(&message)) {
    if (given_up_.contains(gathered->tag)) return;
    gatherings_[gathered->tag].given[gathered->rank] = std::move(*gathered);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    set_failure({failed->peer, failed->text, failed->timeout});
  } else if (const auto* left = std::get_if<Left>(&message)) {
    left_.insert(left->rank);
  } else {
    throw FrameError("rank 0 sent a message that is none of its own");
  }
  changed_.notify_all();
}

}  // namespace lockstep::transport
