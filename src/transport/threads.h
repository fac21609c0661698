#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "transport/job.h"

namespace lockstep::transport {

struct ThreadsOptions {
  bool rendezvous = false;              ///< A send is over only when it has been received.
  std::optional<uint64_t> delays = {};  ///< Seed of random delays; none without.
  uint32_t first_run = 0;               ///< Where flags are counted from, to see them wrap around.
  size_t arena_bytes = size_t{1} << 30;
};

/// The engine `threads`: ranks are threads of this process. One job for each of them; each thread takes its
/// own.
std::vector<std::unique_ptr<Job>> make_thread_jobs(int world, const ThreadsOptions& options = {});

}  // namespace lockstep::transport
