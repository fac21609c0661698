#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/collectives.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::plan {

/// The closed formula of an algorithm's time, in seconds, where there is one that holds exactly for chunks of
/// equal size: on a one-level network without slow ranks (hierarchical: on a two-level one with full nodes).
/// `bytes` is the whole buffer, or one rank's part where each chunk is one (scatter, gather, all_gather,
/// all_to_all). Nothing where no formula holds.
std::optional<double> formula_time(Collective collective, std::string_view algorithm, const Shape& shape,
                                   int64_t bytes, const Network& network);

/// One algorithm's prediction.
struct Estimate {
  std::string algorithm;
  double time_s = 0;
};

/// Whether an algorithm can be used on this network at all: push needs all ranks on one node, hierarchical
/// needs nodes.
bool applies(const Algorithm& algorithm, const Shape& shape, const Network& network);

/// The fastest algorithm that applies, by formula where one holds, else by simulation.
Estimate choose_algorithm(Collective collective, const Shape& shape, int64_t bytes, const Network& network);

/// The time of one algorithm in the model: by formula where one holds, else by simulation.
double model_time(Collective collective, std::string_view algorithm, const Shape& shape, int64_t bytes,
                  const Network& network);

}  // namespace lockstep::plan

namespace lockstep {

/// Seconds that an all-reduce of `bytes` takes on `world_size` ranks whose links carry `bandwidth` bytes per
/// second with `latency` seconds each; `algorithm` by name (`ring`, `tree`, ...), or `auto` for the fastest.
/// Additions are free.
double estimate_communication_time(int64_t bytes, int world_size, double bandwidth, double latency,
                                   std::string_view algorithm = "ring");

}  // namespace lockstep
