#include "transport/pair_proof.h"

#include <fmt/format.h>
#include <sodium.h>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

constexpr uint64_t kChannel = 0;  // of no group

std::string statement(int from, int to) {
  return fmt::format("lockstep pair: rank {} to rank {}", from, to);
}

struct Proof {
  Mac mac = {};
  std::unique_ptr<Wire::Post> post = {};
};

void await(Wire::Post& post, Control& control, int rank, int peer, Control::Clock::time_point deadline) {
  try {
    for (;;) {
      const bool is_last_look = Control::Clock::now() >= deadline;
      if (post.wait_for(std::chrono::milliseconds(20))) return;
      if (const auto failure = control.failure()) failure->raise();
      if (!is_last_look) continue;
      throw TimeoutError(
          fmt::format("connecting on rank {}: rank {} did not prove in time that it is of this job; "
                      "hint: it is stuck, or a stranger took its connection",
                      rank, peer),
          peer);
    }
  } catch (const Wire::Broken& broken) {
    throw PeerError(
        fmt::format("connecting on rank {}: the connection to rank {} ended: {}; hint: that rank died, or a "
                    "stranger took its connection",
                    rank, peer, broken.why),
        peer);
  }
}

}  // namespace

void prove_pairs(Wire& wire, Control& control, int rank, int world, const Key& key,
                 Control::Clock::time_point deadline) {
  std::vector<Proof> sent(static_cast<size_t>(world));
  std::vector<Proof> received(static_cast<size_t>(world));
  try {
    for (int peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      Proof& to = sent[static_cast<size_t>(peer)];
      const std::string text = statement(rank, peer);
      crypto_auth(to.mac.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                  key.data());
      to.post = wire.send(peer, kChannel, to.mac.data(), to.mac.size());
      Proof& from = received[static_cast<size_t>(peer)];
      from.post = wire.receive(peer, kChannel, from.mac.data(), from.mac.size());
    }
  } catch (const Wire::Broken& broken) {
    throw PeerError(fmt::format("connecting on rank {}: {}", rank, broken.why), -1);
  }
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    Proof& from = received[static_cast<size_t>(peer)];
    await(*from.post, control, rank, peer, deadline);
    // Before this rank turns away: the other shall find out, too.
    await(*sent[static_cast<size_t>(peer)].post, control, rank, peer, deadline);
    const std::string text = statement(peer, rank);
    if (crypto_auth_verify(from.mac.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                           key.data()) != 0) {
      throw PeerError(
          fmt::format("connecting on rank {}: what answers in place of rank {} does not know this job's "
                      "secret; hint: a stranger took its connection; start the job again",
                      rank, peer),
          peer);
    }
  }
}

}  // namespace lockstep::transport
