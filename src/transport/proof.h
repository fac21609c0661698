#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/greeting.h"

// How two ranks prove to each other over the network that they know the job's token, without saying it:
//
//   rank 0 -> rank r   challenge: nonce 0
//   rank r -> rank 0   proof: nonce r, claim, HMAC(token, "rank r" | nonce 0 | nonce r | claim)
//   rank 0 -> rank r   answer: HMAC(token, "rank 0" | nonce 0 | nonce r | claim)
//
// Both nonces are in both HMACs, so that neither can be used again; the roles differ, so that neither can be
// sent back as the other; rank 0 computes none for who has not proved itself. HMAC-SHA-512-256 of libsodium.
// What follows is neither encrypted nor authenticated: this keeps strangers out, not those on the wire.

namespace lockstep::transport {

using Nonce = std::array<std::uint8_t, 32>;
using Mac = std::array<std::uint8_t, 32>;
using Key = std::array<std::uint8_t, 32>;

Nonce random_nonce();
Key key_of(std::string_view token);

constexpr std::size_t kChallengeBytes = kGreetingBytes + sizeof(Nonce);
constexpr std::size_t kProofBytes = kGreetingBytes + sizeof(Nonce) + kClaimBytes + sizeof(Mac);
constexpr std::size_t kAnswerBytes = kGreetingBytes + sizeof(Mac);
static_assert(kProofBytes <= 256, "all that a stranger can make rank 0 read");

std::string make_challenge(const Nonce& nonce_0);
std::optional<Nonce> read_challenge(std::string_view bytes);

std::string make_proof(const Key& key, const Nonce& nonce_0, const Nonce& nonce_r, const Claim& claim);

/// A proof that holds: who sent it, and what to answer.
struct Proved {
  Claim claim;
  std::string answer;
};
/// Nothing unless `bytes` are exactly a proof, made with this key for this challenge.
std::optional<Proved> check_proof(std::string_view bytes, const Key& key, const Nonce& nonce_0);

/// Whether `bytes` are the answer of a rank 0 that knows the key.
bool check_answer(std::string_view bytes, const Key& key, const Nonce& nonce_0, const Nonce& nonce_r,
                  const Claim& claim);

}  // namespace lockstep::transport
