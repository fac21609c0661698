#pragma once

#include <fmt/format.h>

#include <string>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// Why a pipeline of this shape is not worth reading or proving: it would have too many actions even without
/// messages and with one action per stage and micro-batch. "" if it is. All numbers must be above zero.
inline std::string too_large(const PipelineShape& shape) {
  const int64_t most = kMostPipelineActions / shape.ranks;
  if (shape.chunks <= most && shape.microbatches <= most / shape.chunks) return "";
  return fmt::format("{} ranks, {} micro-batches and {} chunks are more than {} actions", shape.ranks,
                     shape.microbatches, shape.chunks, kMostPipelineActions);
}

}  // namespace lockstep::plan
