#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::transport {

/// Appends `number`, lowest byte first, whatever the machine's own order.
template <std::unsigned_integral Number>
void put_number(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) out += static_cast<char>((number >> (8 * i)) & 0xff);
}

/// The number that put_number() wrote as the first bytes of `bytes`, which must hold it whole.
template <std::unsigned_integral Number>
Number get_number(std::string_view bytes) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number |= static_cast<Number>(Number{static_cast<std::uint8_t>(bytes[i])} << (8 * i));
  }
  return number;
}

}  // namespace lockstep::transport
