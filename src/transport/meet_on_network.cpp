#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/error.h"
#include "transport/addresses.h"
#include "transport/control.h"
#include "transport/meeting.h"
#include "transport/proof.h"
#include "transport/reception.h"
#include "transport/star.h"

namespace lockstep::transport {

namespace {

using launch::UniqueFd;

/// One who connected and has yet to prove that it knows the token.
class NetworkGuest final : public Guest {
 public:
  NetworkGuest(UniqueFd socket, const Key& key)
      : socket_(std::move(socket)), key_(key), nonce_(random_nonce()) {
    configure_tcp(fd());
    send_all(fd(), make_challenge(nonce_), Deadline::min());
  }

  int fd() const override { return socket_.get(); }
  Standing read() override {
    const std::size_t have = bytes_.size();
    bytes_.resize(kProofBytes);  // not a byte more is read of one who is not known
    const ssize_t got = recv(fd(), bytes_.data() + have, kProofBytes - have, MSG_DONTWAIT);
    const bool again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    bytes_.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0 && !again) return Standing::kStranger;
    if (!kMagic.starts_with(std::string_view(bytes_).substr(0, kMagic.size()))) return Standing::kStranger;
    if (bytes_.size() < kProofBytes) return Standing::kUnknown;
    const auto proved = check_proof(bytes_, key_, nonce_);
    if (!proved) return Standing::kStranger;
    claim_ = proved->claim;
    send_all(fd(), proved->answer, Deadline::min());
    return Standing::kKnown;
  }
  Newcomer take() override {
    Address peer;
    peer.size = sizeof peer.storage;
    getpeername(fd(), peer.get(), &peer.size);
    return {.claim = claim_,
            .where = fmt::format("pid {} at {}", claim_.pid, peer.host_text()),
            .socket = std::move(socket_),
            .descriptor = {},
            .process = {}};
  }
  void send_away() override { send_all(fd(), start_greeting(Greeting::kBusy), Deadline::min()); }

 private:
  UniqueFd socket_;
  const Key& key_;
  Nonce nonce_;
  std::string bytes_;
  Claim claim_;
};

std::unique_ptr<Control> meet_as_rank_0(const Meeting& meeting, const NetworkOptions& network,
                                        const Key& key) {
  Address bound;
  UniqueFd listener = listen_on(meeting, resolve(meeting, network), bound);
  const std::string where = fmt::format("listening on {}{}", bound.text(),
                                        bound.is_loopback() ? ", which only this host can reach" : "");
  const auto open = [&](UniqueFd socket) { return std::make_unique<NetworkGuest>(std::move(socket), key); };
  std::vector<Newcomer> newcomers = receive_ranks(
      meeting,
      {.listener = listener.get(), .open = open, .where = where, .also_alike = " and LOCKSTEP_TOKEN"});
  listener.reset();
  std::vector<Member> members;
  for (std::size_t rank = 1; rank < newcomers.size(); ++rank) {
    Newcomer& newcomer = newcomers[rank];
    send_word(newcomer.socket.get(), Welcome{getpid()});
    members.push_back({.socket = std::move(newcomer.socket), .process = {}, .who = newcomer.who()});
  }
  return serve_star(std::move(members));
}

/// A rank other than 0, until rank 0 knows it.
class Knocker {
 public:
  Knocker(const Meeting& meeting, const NetworkOptions& network, const Key& key)
      : meeting_(meeting), network_(network), key_(key) {}

  UniqueFd run() {
    constexpr std::chrono::seconds kPatienceWithAddress{3};  // a host that is down does not even refuse
    std::vector<Address> addresses;
    for (Backoff backoff(meeting_.deadline());;) {
      if (addresses.empty()) addresses = resolve(meeting_, network_);
      for (const Address& address : addresses) {
        const Deadline patience = Control::Clock::now() + kPatienceWithAddress;
        UniqueFd socket = try_connect(address, std::min(patience, meeting_.deadline()), why_);
        if (!socket) continue;
        where_ = address.text();
        configure_tcp(socket.get());
        if (is_let_in(socket.get())) return socket;
      }
      if (!backoff.wait()) break;
    }
    throw TimeoutError(meeting_.text(fmt::format(
                           "rank 0 did not come within {}: {}; hint: was rank 0 started, on the host of that "
                           "address, and can this host reach it?",
                           meeting_.patience(), why_)),
                       0);
  }

 private:
  enum class Heard { kGreeting, kNothing, kBusy };

  /// Reads a greeting of `size` bytes.
  Heard hear(int socket, std::size_t size, std::string& bytes) {
    bytes.clear();
    std::string start;
    Delivery delivery = receive_exactly(socket, kGreetingBytes, start, meeting_.deadline());
    if (delivery == Delivery::kDone && greeting_kind(start) == Greeting::kBusy) return Heard::kBusy;
    if (delivery == Delivery::kDone && greeting_kind(start)) {
      delivery = receive_exactly(socket, size - kGreetingBytes, bytes, meeting_.deadline());
    }
    bytes.insert(0, start);
    return delivery == Delivery::kDone ? Heard::kGreeting : Heard::kNothing;
  }

  /// False if one should knock again.
  bool is_let_in(int socket) {
    std::string bytes;
    const Heard heard = hear(socket, kChallengeBytes, bytes);
    if (heard != Heard::kGreeting) {  // a rank 0 that is full or ends, or not a rank 0
      why_ = where_ + " takes connections, but does not speak as rank 0 does";
      return false;
    }
    const auto nonce_0 = read_challenge(bytes);
    if (!nonce_0) {
      throw UsageError(
          meeting_.text(fmt::format("what listens on {} is not rank 0 of a Lockstep job; hint: give all "
                                    "ranks rank 0's address and a port that is free there",
                                    where_)));
    }
    const Nonce nonce_r = random_nonce();
    send_all(socket, make_proof(key_, *nonce_0, nonce_r, meeting_.claim()), meeting_.deadline());
    const Heard answer = hear(socket, kAnswerBytes, bytes);
    if (answer == Heard::kGreeting && check_answer(bytes, key_, *nonce_0, nonce_r, meeting_.claim())) {
      return true;
    }
    if (answer == Heard::kBusy || Control::Clock::now() >= meeting_.deadline()) {
      why_ = where_ + " did not answer this rank's proof";
      return false;
    }
    throw UsageError(
        meeting_.text(fmt::format("what listens on {} did not prove that it knows this job's token: the "
                                  "tokens differ, or it is no rank 0 of this job; hint: export the same "
                                  "LOCKSTEP_TOKEN on every host",
                                  where_)));
  }

  const Meeting& meeting_;
  const NetworkOptions& network_;
  const Key& key_;
  std::string where_;
  std::string why_ = "the name service does not know its address";
};

}  // namespace

std::unique_ptr<Control> meet_on_network(const MeetOptions& options, const NetworkOptions& network) {
  const Meeting meeting(options);
  if (meeting.world() == 1) return make_lone_control();
  if (network.token.empty()) {
    throw UsageError(
        meeting.text("there is no token, by which ranks on different hosts know each other; hint: once, "
                     "then with that value on every host: export LOCKSTEP_TOKEN=$(openssl rand -hex 32)"));
  }
  const Key key = key_of(network.token);
  if (meeting.rank() == 0) return meet_as_rank_0(meeting, network, key);
  UniqueFd socket = Knocker(meeting, network, key).run();
  const Welcome welcome = await_welcome(meeting, socket.get());
  return join_star(meeting.rank(), meeting.world(),
                   {.socket = std::move(socket),
                    .process = {},
                    .who = fmt::format("rank 0 (pid {} at {})", welcome.pid, network.address)});
}

}  // namespace lockstep::transport
