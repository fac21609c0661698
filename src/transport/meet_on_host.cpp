#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/error.h"
#include "transport/control.h"
#include "transport/descriptors.h"
#include "transport/meeting.h"
#include "transport/reception.h"
#include "transport/star.h"

namespace lockstep::transport {

namespace {

using launch::UniqueFd;

/// A name in the abstract space: no file, gone with its last descriptor.
struct SocketName {
  std::string text;
  sockaddr_un address = {};
  socklen_t size = 0;

  explicit SocketName(const Meeting& meeting) : text("lockstep-") {
    constexpr std::size_t kBytes = 16;
    const Digest hash = digest(fmt::format("{}/{}", geteuid(), meeting.name()));
    for (std::size_t i = 0; i < kBytes; ++i) text += fmt::format("{:02x}", hash[i]);
    address.sun_family = AF_UNIX;
    std::copy(text.begin(), text.end(), address.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

UniqueFd open_socket(const Meeting& meeting) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw Error(meeting.text("socket: " + error_text(errno)));
  return socket;
}

UniqueFd duplicate(const Meeting& meeting, int descriptor) {
  if (descriptor < 0) return {};
  UniqueFd copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw UsageError(meeting.text(fmt::format("descriptor {}: {}", descriptor, error_text(errno))));
  return copy;
}

/// Who is at the other end, by the kernel's word.
ucred credentials(int socket) {
  ucred found = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof found;
  getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &size);
  return found;
}

/// A process of this user that has yet to say which rank it is.
class HostGuest final : public Guest {
 public:
  HostGuest(UniqueFd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}

  int fd() const override { return socket_.get(); }
  Standing read() override {
    const std::size_t have = bytes_.size();
    bytes_.resize(kHelloBytes);
    const ssize_t got =
        receive_with_descriptors(fd(), bytes_.data() + have, kHelloBytes - have, descriptors_);
    const bool again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    bytes_.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0 && !again) return Standing::kStranger;
    if (bytes_.size() < kHelloBytes) return Standing::kUnknown;
    const auto claim = read_hello(bytes_);
    if (!claim || descriptors_.size() > 1) return Standing::kStranger;
    claim_ = *claim;
    return Standing::kKnown;
  }
  Newcomer take() override {
    return {.claim = claim_,
            .where = fmt::format("pid {}", pid_),
            .socket = std::move(socket_),
            .descriptor = descriptors_.empty() ? UniqueFd() : std::move(descriptors_[0]),
            .process = open_process(pid_)};
  }

 private:
  UniqueFd socket_;
  pid_t pid_;
  std::string bytes_;
  std::vector<UniqueFd> descriptors_;
  Claim claim_;
};

UniqueFd listen_on(const Meeting& meeting, const SocketName& name) {
  UniqueFd listener = open_socket(meeting);
  if (bind(listener.get(), name.get(), name.size) != 0) {
    const std::string why = errno == EADDRINUSE ? "is taken: another process meets there as rank 0"
                                                : "cannot be bound: " + error_text(errno);
    throw UsageError(meeting.text(
        fmt::format("the socket @{} {}; hint: give every process its own rank, and every job its own name",
                    name.text, why)));
  }
  if (listen(listener.get(), SOMAXCONN) != 0) throw Error(meeting.text("listen: " + error_text(errno)));
  return listener;
}

Host meet_as_rank_0(const Meeting& meeting, int descriptor) {
  const SocketName name(meeting);
  Host host;
  host.descriptors.push_back(duplicate(meeting, descriptor));
  UniqueFd listener = listen_on(meeting, name);
  const auto open = [](UniqueFd socket) -> std::unique_ptr<Guest> {
    const ucred peer = credentials(socket.get());
    if (peer.uid != geteuid()) return nullptr;
    return std::make_unique<HostGuest>(std::move(socket), peer.pid);
  };
  std::vector<Newcomer> newcomers = receive_ranks(meeting, {.listener = listener.get(), .open = open});
  listener.reset();
  std::vector<Member> members;
  for (std::size_t rank = 1; rank < newcomers.size(); ++rank) {
    host.descriptors.push_back(std::move(newcomers[rank].descriptor));
  }
  for (std::size_t rank = 1; rank < newcomers.size(); ++rank) {
    Newcomer& newcomer = newcomers[rank];
    send_word(newcomer.socket.get(), Welcome{getpid()});
    // One that has died meanwhile is the star's first failure.
    if (send_table(newcomer.socket.get(), host.descriptors, meeting.deadline()) == Delivery::kTimeout) {
      throw TimeoutError(meeting.text(fmt::format("{} did not take the others' descriptors within {}",
                                                  newcomer.who(), meeting.patience())),
                         static_cast<int>(rank));
    }
    members.push_back({.socket = std::move(newcomer.socket),
                       .process = std::move(newcomer.process),
                       .who = newcomer.who()});
  }
  host.control = serve_star(std::move(members));
  return host;
}

UniqueFd connect_to_rank_0(const Meeting& meeting, const SocketName& name) {
  std::string why = "nobody listens there";
  for (Backoff backoff(meeting.deadline());;) {
    UniqueFd socket = open_socket(meeting);
    if (connect(socket.get(), name.get(), name.size) == 0) {
      const uid_t uid = credentials(socket.get()).uid;
      if (uid == geteuid()) return socket;
      why = fmt::format("uid {} listens there, this rank is of uid {}", uid, geteuid());
    } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      throw Error(meeting.text(fmt::format("connect to @{}: {}", name.text, error_text(errno))));
    }
    if (!backoff.wait()) break;
  }
  throw TimeoutError(
      meeting.text(fmt::format("rank 0 did not come within {}: no connection to @{}, {}; hint: was "
                               "rank 0 started on this host, with the same meeting's name?",
                               meeting.patience(), name.text, why)),
      0);
}

Host meet_as_other(const Meeting& meeting, int descriptor) {
  const UniqueFd own = duplicate(meeting, descriptor);
  UniqueFd socket = connect_to_rank_0(meeting, SocketName(meeting));
  std::vector<int> passed;
  if (own) passed.push_back(own.get());
  // If rank 0 has gone, that shows below.
  send_with_descriptors(socket.get(), make_hello(meeting.claim()), passed, meeting.deadline());
  await_welcome(meeting, socket.get());
  Host host;
  host.descriptors.resize(static_cast<std::size_t>(meeting.world()));
  const Delivery delivery = receive_table(socket.get(), host.descriptors, meeting.deadline());
  if (delivery == Delivery::kTimeout) {
    throw TimeoutError(meeting.text(fmt::format("rank 0 did not pass on the ranks' descriptors within {}",
                                                meeting.patience())),
                       0);
  }
  if (delivery == Delivery::kClosed) {
    throw PeerError(meeting.text("rank 0 is gone: it passed on no descriptors"), 0);
  }
  const pid_t pid = credentials(socket.get()).pid;
  host.control = join_star(meeting.rank(), meeting.world(),
                           {.socket = std::move(socket),
                            .process = open_process(pid),
                            .who = fmt::format("rank 0 (pid {})", pid)});
  return host;
}

}  // namespace

Host meet_on_host(const MeetOptions& options, int descriptor) {
  const Meeting meeting(options);
  if (meeting.world() == 1) {
    Host host;
    host.control = make_lone_control();
    host.descriptors.push_back(duplicate(meeting, descriptor));
    return host;
  }
  return meeting.rank() == 0 ? meet_as_rank_0(meeting, descriptor) : meet_as_other(meeting, descriptor);
}

}  // namespace lockstep::transport
