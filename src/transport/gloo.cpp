#include "transport/gloo.h"

#include "launch/environment.h"
#include "transport/gloo_wire.h"
#include "transport/meet_job.h"
#include "transport/pair_proof.h"
#include "transport/wired_job.h"

namespace lockstep::transport {

namespace {

/// What a rank tells the others to be found: a part of the job's secret, then its addresses.
struct Card {
  Nonce secret;
  std::string addresses;
};

std::string encode(const Card& card) {
  return std::string(card.secret.begin(), card.secret.end()) + card.addresses;
}

}  // namespace

std::unique_ptr<Job> connect_gloo(const Identity& identity, Control::Clock::time_point deadline) {
  const NetworkOptions network = network_of(identity, launch::current_environment());
  auto control = meet_job("gloo", identity, network, deadline);
  const int world = identity.world_size;
  const auto patience =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Control::Clock::now());
  auto wire = std::make_unique<GlooWire>(
      identity.rank, world, is_on_one_host(identity) ? "127.0.0.1" : own_address_towards(network.address),
      patience);

  std::vector<int> everybody;
  for (int rank = 0; rank < world; ++rank) everybody.push_back(rank);
  const std::string own = encode({.secret = random_nonce(), .addresses = wire->addresses()});
  std::string secrets = is_on_one_host(identity) ? "" : network.token;
  std::vector<std::string> addresses;
  for (const auto& card : control->all_gather("gloo addresses", everybody, own, deadline)) {
    secrets += card.substr(0, sizeof(Nonce));
    addresses.push_back(card.size() > sizeof(Nonce) ? card.substr(sizeof(Nonce)) : "");
  }
  wire->connect(addresses);
  prove_pairs(*wire, *control, identity.rank, world, key_of(secrets), deadline);
  return std::make_unique<WiredJob>("gloo", identity.rank, world, std::move(control), std::move(wire));
}

}  // namespace lockstep::transport
