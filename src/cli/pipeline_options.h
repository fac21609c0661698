#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace lockstep::cli {

class Flags;

/// The flags of a pipeline's shape.
struct PipelineOptions {
  int64_t stages = 4;
  int64_t microbatches = 8;
  int64_t chunks = 0;  ///< 0: as many as the schedule needs.

  void add_to(Flags flags);

  /// The shape for one of `chosen`: those that have no chunks get one. Throws UsageError if --chunks is for
  /// none of them.
  plan::PipelineShape shape_of(const plan::Schedule& schedule,
                               const std::vector<plan::Schedule>& chosen) const;
};

/// A schedule as typed. Throws UsageError that tells of those on offer, and of the nearest among them.
const plan::Schedule& schedule_named(const std::string& word,
                                     const std::vector<plan::Schedule>& offered = plan::schedules());

/// Schedules as typed: `gpipe,1f1b`, or `all` on offer. Throws as schedule_named().
std::vector<plan::Schedule> parse_schedules(const std::string& names,
                                            const std::vector<plan::Schedule>& offered = plan::schedules());

/// Throws UsageError if a collective's name is `pipeline`, in any spelling or after a flag: it is no
/// collective, but a verb with `verb`.
void refuse_as_collective(const std::string& verb, const std::string& collective);

}  // namespace lockstep::cli
