#pragma once

#include <stdexcept>
#include <string>

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

/// Another rank, or the way to it, failed: it died, called something else, aborted.
struct PeerError : Error {
  PeerError(const std::string& text, int failed_peer) : Error(text), peer(failed_peer) {}
  int peer;  ///< The rank at fault; -1 if it cannot be told.
};

/// A peer did not answer in time.
struct TimeoutError : PeerError {
  using PeerError::PeerError;
};

}  // namespace lockstep
