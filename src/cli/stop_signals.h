#pragma once

namespace lockstep::cli {

/// What `lockstep train` ends with when it was asked to stop by SIGTERM or SIGUSR1, and has saved:
/// EX_TEMPFAIL of sysexits.h, "try again".
constexpr int kExitStopped = 75;
/// The same after Ctrl-C: 128 + SIGINT, as shells report it.
constexpr int kExitInterrupted = 130;

/// While one lives, the first SIGINT, SIGTERM or SIGUSR1 is only noted, so that work can end at a good place;
/// a second SIGINT ends the process. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came first; 0 if none did.
  static int seen();
};

}  // namespace lockstep::cli
