#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::transport {

/// A hash by libsodium's generichash (BLAKE2b).
using Digest = std::array<std::uint8_t, 32>;
Digest digest(std::string_view bytes);

/// Who one says it is who knocks at rank 0's door. Of fixed size: nobody gives lengths before it is known.
struct Claim {
  std::uint32_t rank = 0;
  std::uint32_t world = 0;
  std::int64_t pid = 0;
  Digest name = {};  ///< Of the meeting.
  bool operator==(const Claim&) const = default;
};

constexpr std::size_t kClaimBytes = 4 + 4 + 8 + sizeof(Digest);
std::string encode(const Claim& claim);
/// `bytes` holds kClaimBytes.
Claim decode_claim(std::string_view bytes);

/// What is said before a meeting's frames. All of it begins with kMagic and the kind.
enum class Greeting : std::uint8_t {
  kHello = 1,      ///< on a host, to rank 0: a claim
  kChallenge = 2,  ///< over the network, from rank 0: a nonce
  kProof = 3,      ///< to rank 0: a nonce, a claim, and that the sender knows the token
  kAnswer = 4,     ///< from rank 0: that it knows the token, too
  kBusy = 5,       ///< from rank 0: come again
};

constexpr std::string_view kMagic = "lockstep control 1\n";
constexpr std::size_t kGreetingBytes = kMagic.size() + 1;

std::string start_greeting(Greeting kind);
/// The kind of a greeting that begins with `bytes`, kGreetingBytes or more; nothing if it is none.
std::optional<Greeting> greeting_kind(std::string_view bytes);

constexpr std::size_t kHelloBytes = kGreetingBytes + kClaimBytes;
std::string make_hello(const Claim& claim);
/// Nothing unless `bytes` are exactly a hello.
std::optional<Claim> read_hello(std::string_view bytes);

}  // namespace lockstep::transport
