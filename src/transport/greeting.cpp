#include "transport/greeting.h"

#include <sodium.h>

#include <algorithm>

#include "lockstep/error.h"
#include "transport/bytes.h"

namespace lockstep::transport {

Digest digest(std::string_view bytes) {
  if (sodium_init() < 0) throw Error("libsodium: cannot be initialised");
  Digest out;
  crypto_generichash(out.data(), out.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
  return out;
}

std::string encode(const Claim& claim) {
  std::string out;
  put_number(out, claim.rank);
  put_number(out, claim.world);
  put_number(out, static_cast<std::uint64_t>(claim.pid));
  out.append(claim.name.begin(), claim.name.end());
  return out;
}

Claim decode_claim(std::string_view bytes) {
  Claim claim;
  claim.rank = get_number<std::uint32_t>(bytes);
  claim.world = get_number<std::uint32_t>(bytes.substr(4));
  claim.pid = static_cast<std::int64_t>(get_number<std::uint64_t>(bytes.substr(8)));
  std::copy_n(bytes.begin() + 16, claim.name.size(), claim.name.begin());
  return claim;
}

std::string start_greeting(Greeting kind) {
  return std::string(kMagic) + static_cast<char>(kind);
}

std::optional<Greeting> greeting_kind(std::string_view bytes) {
  if (bytes.size() < kGreetingBytes || !bytes.starts_with(kMagic)) return std::nullopt;
  const auto kind = static_cast<std::uint8_t>(bytes[kMagic.size()]);
  if (kind < static_cast<std::uint8_t>(Greeting::kHello)) return std::nullopt;
  if (kind > static_cast<std::uint8_t>(Greeting::kBusy)) return std::nullopt;
  return static_cast<Greeting>(kind);
}

std::string make_hello(const Claim& claim) {
  return start_greeting(Greeting::kHello) + encode(claim);
}

std::optional<Claim> read_hello(std::string_view bytes) {
  if (bytes.size() != kHelloBytes || greeting_kind(bytes) != Greeting::kHello) return std::nullopt;
  return decode_claim(bytes.substr(kGreetingBytes));
}

}  // namespace lockstep::transport
