#include "transport/engines.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "transport/build_info.h"

namespace lockstep::transport {

const std::vector<Engine>& engines() {
  static const std::string_view gloo = LOCKSTEP_GLOO_VERSION;
  static const std::string_view mpi = LOCKSTEP_MPI_VERSION;
  static const std::vector<Engine> all = {
      {.name = "threads",
       .what = "ranks are threads of one process",
       .built = true,
       .version = "",
       .package = ""},
      {.name = "shm",
       .what = "memory shared by the ranks of one host",
       .built = true,
       .version = "",
       .package = ""},
      {.name = "gloo",
       .what = "TCP between hosts",
       .built = !gloo.empty(),
       .version = gloo,
       .package = "libgloo-dev"},
      {.name = "mpi", .what = "Open MPI", .built = !mpi.empty(), .version = mpi, .package = "libopenmpi-dev"},
  };
  return all;
}

bool is_built(std::string_view name) {
  return std::any_of(engines().begin(), engines().end(),
                     [&](const Engine& engine) { return engine.name == name && engine.built; });
}

void require_engine(std::string_view name, std::string_view origin) {
  const auto& all = engines();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Engine& engine) { return engine.name == name; });
  if (found == all.end()) {
    throw UsageError(
        fmt::format("{} {}: there is no such engine; hint: choose threads, shm, gloo or mpi", origin, name));
  }
  if (!found->built) {
    throw UsageError(
        fmt::format("{} {}: Lockstep was built without it; hint: apt-get install {}, then build again",
                    origin, name, found->package));
  }
}

}  // namespace lockstep::transport
