#pragma once

#include <stdexcept>

namespace lockstep {

/// The root of everything that Lockstep throws. Texts read: operation, this rank, peer, found against
/// expected, then `; hint: ...`.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The caller broke a documented precondition: a bad flag, environment variable, file or argument.
struct UsageError : Error {
  using Error::Error;
};

}  // namespace lockstep
