#include "transport/reception.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "lockstep/error.h"
#include "transport/gatherings.h"

namespace lockstep::transport {

namespace {

using Clock = Control::Clock;

constexpr std::size_t kMostGuests = 64;
constexpr std::chrono::seconds kPatienceWithGuest{5};
constexpr std::chrono::seconds kPatienceWhenFull{1};

class Reception {
 public:
  Reception(const Meeting& meeting, const Door& door)
      : meeting_(meeting), door_(door), present_(static_cast<std::size_t>(meeting.world())) {}

  std::vector<Newcomer> run() {
    while (present_count_ + 1 < present_.size()) step();
    return std::move(present_);
  }

 private:
  struct Visit {
    std::unique_ptr<Guest> guest;
    Clock::time_point since;
  };

  bool is_full() const { return guests_.size() >= kMostGuests; }
  Clock::time_point end_of_oldest() const {
    if (guests_.empty()) return Clock::time_point::max();
    return guests_.front().since + (is_full() ? kPatienceWhenFull : kPatienceWithGuest);
  }

  void step();
  void accept_one();
  void hear(std::size_t guest);
  void admit(Newcomer newcomer);
  void check_presence(std::size_t rank);
  [[noreturn]] void give_up();
  [[noreturn]] void refuse_all(const Refused& refused);

  const Meeting& meeting_;
  const Door& door_;
  std::vector<Newcomer> present_;
  std::size_t present_count_ = 0;
  std::deque<Visit> guests_;  ///< Oldest first.
  std::size_t turned_away_ = 0;
  std::size_t late_steps_ = 0;  ///< After the deadline: strangers who keep coming do not prolong it.
};

void Reception::step() {
  // Before poll(): what came while this process was stopped or busy is read before anybody counts as late.
  const auto now = Clock::now();
  const bool may_accept = !is_full() || now >= end_of_oldest();
  std::vector<pollfd> watched = {{.fd = may_accept ? door_.listener : -1, .events = POLLIN, .revents = 0}};
  for (const Newcomer& newcomer : present_) {
    watched.push_back({.fd = newcomer.socket.get(), .events = POLLIN, .revents = 0});
  }
  for (const Visit& visit : guests_) {
    watched.push_back({.fd = visit.guest->fd(), .events = POLLIN, .revents = 0});
  }
  const auto wake = may_accept && is_full() ? guests_.front().since + kPatienceWithGuest : end_of_oldest();
  const int ready = poll(watched.data(), watched.size(), poll_ms(std::min(wake, meeting_.deadline())));
  if (ready < 0) {
    if (errno == EINTR) return;
    throw Error(meeting_.text("poll: " + error_text(errno)));
  }
  for (std::size_t rank = 0; rank < present_.size(); ++rank) {
    if (watched[1 + rank].revents != 0) check_presence(rank);
  }
  // From the last, because those who are heard out go.
  for (std::size_t i = guests_.size(); i-- > 0;) {
    if (watched[1 + present_.size() + i].revents != 0) {
      hear(i);
    } else if (now >= guests_[i].since + kPatienceWithGuest) {
      guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
      ++turned_away_;
    }
  }
  if (watched[0].revents != 0) accept_one();
  if (now >= meeting_.deadline() && (ready == 0 || late_steps_++ > kMostGuests + 2 * present_.size()))
    give_up();
}

void Reception::accept_one() {
  launch::UniqueFd socket(accept4(door_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      throw Error(meeting_.text("accept: " + error_text(errno) + "; hint: raise ulimit -n"));
    }
    return;  // whoever it was has gone
  }
  auto guest = door_.open(std::move(socket));
  if (!guest) {
    ++turned_away_;
    return;
  }
  if (is_full()) {
    guests_.front().guest->send_away();
    guests_.pop_front();
  }
  guests_.push_back({std::move(guest), Clock::now()});
}

void Reception::hear(std::size_t guest) {
  const auto visit = guests_.begin() + static_cast<std::ptrdiff_t>(guest);
  const Guest::Standing standing = visit->guest->read();
  if (standing == Guest::Standing::kUnknown) return;
  if (standing == Guest::Standing::kStranger) {
    guests_.erase(visit);
    ++turned_away_;
    return;
  }
  Newcomer newcomer = visit->guest->take();
  guests_.erase(visit);
  admit(std::move(newcomer));
}

void Reception::admit(Newcomer newcomer) {
  const Claim& claim = newcomer.claim;
  if (claim.name != meeting_.claim().name) {  // another job's, which may have outlived it: not our failure
    send_word(newcomer.socket.get(), Refused{false, 0,
                                             "this is another meeting; hint: all ranks of a job must "
                                             "give the same name, and no other job's address"});
    ++turned_away_;
    return;
  }
  const int peer = claim.rank < present_.size() ? static_cast<int>(claim.rank) : -1;
  std::string wrong;
  if (claim.world != meeting_.claim().world) {
    wrong = fmt::format(
        "{} came with world size {}, rank 0 has {}; hint: start all ranks with the same world size",
        newcomer.who(), claim.world, meeting_.world());
  } else if (claim.rank >= present_.size()) {
    wrong = fmt::format("{} came, but ranks go from 0 to {}; hint: give every process its own rank",
                        newcomer.who(), meeting_.world() - 1);
  } else if (claim.rank == 0 || present_[claim.rank].socket) {
    wrong =
        fmt::format("{} came, but there is {} already; hint: give every process its own rank", newcomer.who(),
                    claim.rank == 0 ? fmt::format("this rank 0 (pid {})", meeting_.claim().pid)
                                    : present_[claim.rank].who());
  }
  if (!wrong.empty()) {
    send_word(newcomer.socket.get(), Refused{false, peer, wrong});
    refuse_all({false, peer, wrong});
  }
  present_[claim.rank] = std::move(newcomer);
  ++present_count_;
}

/// A rank that has come says nothing until all have: what there is to read is its end.
void Reception::check_presence(std::size_t rank) {
  char byte = 0;
  const ssize_t got = recv(present_[rank].socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  refuse_all(
      {false, static_cast<int>(rank),
       fmt::format("{} {} before all ranks had come; hint: its own output tells why", present_[rank].who(),
                   got > 0 ? "broke the protocol" : "is gone: its connection ended")});
}

void Reception::give_up() {
  std::vector<int> missing;
  for (std::size_t rank = 1; rank < present_.size(); ++rank) {
    if (!present_[rank].socket) missing.push_back(static_cast<int>(rank));
  }
  std::string text = fmt::format("{} did not come within {}", name_ranks(missing), meeting_.patience());
  if (turned_away_ > 0)
    text += fmt::format(", and {} connections of strangers were turned away", turned_away_);
  if (!door_.where.empty()) text += ", " + door_.where;
  refuse_all({true, missing.front(),
              fmt::format("{}; hint: were all ranks started, with the same meeting's name{}?", text,
                          door_.also_alike)});
}

void Reception::refuse_all(const Refused& refused) {
  for (const Newcomer& newcomer : present_) {
    if (newcomer.socket) send_word(newcomer.socket.get(), refused);
  }
  if (refused.timeout) throw TimeoutError(meeting_.text(refused.text), refused.peer);
  throw PeerError(meeting_.text(refused.text), refused.peer);
}

}  // namespace

std::string Newcomer::who() const {
  return fmt::format("rank {} ({})", claim.rank, where);
}

std::vector<Newcomer> receive_ranks(const Meeting& meeting, const Door& door) {
  return Reception(meeting, door).run();
}

}  // namespace lockstep::transport
