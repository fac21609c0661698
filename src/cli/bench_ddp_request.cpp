#include "cli/bench_ddp_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/nearest.h"
#include "cli/size.h"
#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::cli {

std::vector<std::string> parse_ddp_peers(const std::string& list) {
  const std::vector<std::string> known = {"pytorch", "libtorch"};
  std::vector<std::string> systems;
  for (const auto& peer : parts_of(list)) {
    if (std::find(known.begin(), known.end(), peer) == known.end()) {
      const std::string near = nearest(peer, known);
      throw UsageError(
          fmt::format("--peers '{}': there is no such peer; hint: {}", peer,
                      near.empty() ? "pytorch,libtorch" : fmt::format("did you mean {}?", near)));
    }
    const std::vector<std::string> rows = peer == "pytorch"
                                              ? std::vector<std::string>{"pytorch-ddp", "pytorch-ddp-views"}
                                              : std::vector<std::string>{"libtorch"};
    for (const auto& row : rows) {
      if (std::find(systems.begin(), systems.end(), row) == systems.end()) systems.push_back(row);
    }
  }
  return systems;
}

void require_ddp_memory(const DdpBench& bench, size_t systems) {
  const auto available = static_cast<double>(launch::memory().available_bytes);
  for (const auto& model : bench.models) {
    // Weights, gradients, two moments and buckets; what forward keeps of each layer; the batches.
    const double numbers =
        static_cast<double>(model.parameter_count()) * 5 +
        static_cast<double>(model.batch * model.dim * (model.depth * 3 + 2 * bench.batches));
    const double needed =
        numbers * sizeof(float) * static_cast<double>(bench.world) * static_cast<double>(systems);
    if (needed <= available) continue;
    throw UsageError(
        fmt::format("--model {} with batches of {}: {} ranks of {} systems need about {}, and {} of memory "
                    "are free; hint: a "
                    "narrower model, fewer ranks or fewer peers",
                    model.name(), model.batch, bench.world, systems, bytes_text(static_cast<int64_t>(needed)),
                    bytes_text(static_cast<int64_t>(available))));
  }
}

std::string weights_file(size_t model) {
  return fmt::format("weights-{}.f32", model);
}

std::string inputs_file(size_t model, int rank) {
  return fmt::format("inputs-{}-{}.f32", model, rank);
}

std::string targets_file(size_t model, int rank) {
  return fmt::format("targets-{}-{}.f32", model, rank);
}

}  // namespace lockstep::cli
