#pragma once

namespace lockstep::cli {

// What the ranks of `bench launcher` leave in its folder: milliseconds on the monotonic clock, which all
// processes share.
constexpr const char* kDiedFile = "died";     ///< By the rank that killed itself.
constexpr const char* kAskedFile = "asked_";  ///< + rank: by each other rank, when SIGTERM came.
constexpr const char* kReadyFile = "ready_";  ///< + rank: it waits for SIGTERM now.

}  // namespace lockstep::cli
