#include "transport/proof.h"

#include <sodium.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

static_assert(sizeof(Mac) == crypto_auth_BYTES && sizeof(Key) == crypto_auth_KEYBYTES);

constexpr std::string_view kRoleOfRank0 = "lockstep rank 0 answers";
constexpr std::string_view kRoleOfOthers = "a lockstep rank proves";

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

template <typename Array>
void append(std::string& out, const Array& array) {
  out.append(array.begin(), array.end());
}

template <typename Array>
Array array_from(std::string_view bytes) {
  Array array;
  std::copy_n(bytes.begin(), array.size(), array.begin());
  return array;
}

/// Every part has a fixed size but the role, whose two values differ in their first byte: no two statements
/// share bytes.
std::string statement(std::string_view role, const Nonce& nonce_0, const Nonce& nonce_r, const Claim& claim) {
  std::string text(role);
  append(text, nonce_0);
  append(text, nonce_r);
  return text += encode(claim);
}

Mac mac_of(const Key& key, std::string_view text) {
  Mac mac;
  crypto_auth(mac.data(), bytes_of(text), text.size(), key.data());
  return mac;
}

/// In constant time.
bool holds(const Key& key, std::string_view text, const Mac& mac) {
  return crypto_auth_verify(mac.data(), bytes_of(text), text.size(), key.data()) == 0;
}

}  // namespace

Nonce random_nonce() {
  if (sodium_init() < 0) throw Error("libsodium: cannot be initialised");
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Key key_of(std::string_view token) {
  return digest(token);
}

std::string make_challenge(const Nonce& nonce_0) {
  std::string out = start_greeting(Greeting::kChallenge);
  append(out, nonce_0);
  return out;
}

std::optional<Nonce> read_challenge(std::string_view bytes) {
  if (bytes.size() != kChallengeBytes || greeting_kind(bytes) != Greeting::kChallenge) return std::nullopt;
  return array_from<Nonce>(bytes.substr(kGreetingBytes));
}

std::string make_proof(const Key& key, const Nonce& nonce_0, const Nonce& nonce_r, const Claim& claim) {
  std::string out = start_greeting(Greeting::kProof);
  append(out, nonce_r);
  out += encode(claim);
  append(out, mac_of(key, statement(kRoleOfOthers, nonce_0, nonce_r, claim)));
  return out;
}

std::optional<Proved> check_proof(std::string_view bytes, const Key& key, const Nonce& nonce_0) {
  if (bytes.size() != kProofBytes || greeting_kind(bytes) != Greeting::kProof) return std::nullopt;
  bytes.remove_prefix(kGreetingBytes);
  const auto nonce_r = array_from<Nonce>(bytes);
  const Claim claim = decode_claim(bytes.substr(sizeof(Nonce)));
  const auto mac = array_from<Mac>(bytes.substr(sizeof(Nonce) + kClaimBytes));
  if (!holds(key, statement(kRoleOfOthers, nonce_0, nonce_r, claim), mac)) return std::nullopt;
  Proved proved{.claim = claim, .answer = start_greeting(Greeting::kAnswer)};
  append(proved.answer, mac_of(key, statement(kRoleOfRank0, nonce_0, nonce_r, claim)));
  return proved;
}

bool check_answer(std::string_view bytes, const Key& key, const Nonce& nonce_0, const Nonce& nonce_r,
                  const Claim& claim) {
  if (bytes.size() != kAnswerBytes || greeting_kind(bytes) != Greeting::kAnswer) return false;
  const auto mac = array_from<Mac>(bytes.substr(kGreetingBytes));
  return holds(key, statement(kRoleOfRank0, nonce_0, nonce_r, claim), mac);
}

}  // namespace lockstep::transport
