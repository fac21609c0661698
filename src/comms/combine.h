#pragma once

#include <cstdint>
#include <span>

#include "lockstep/comms/types.h"

namespace lockstep::comms {

/// Reduces element i of all `sources`, from left to right, and stores the result to element i of all
/// `destinations`, for `count` elements.
///
/// Buffers are aligned to their elements. A destination may be equal to a source, but not overlap one
/// otherwise; destinations are apart from each other. The mean is a sum divided by `divide_by`: the world's
/// size in the combine that completes the sum, 1 before. Of one source it is a copy. Half types are reduced
/// in float32 and rounded once, at the end. The bits do not depend on alignment, count or CPU: of several
/// NaN the first survives, and 0 and -0 are equal in min and max, where the first wins. Throws UsageError for
/// the mean of a type that is not floating-point.
void combine(DataType type, ReduceOp op, std::span<const void* const> sources,
             std::span<void* const> destinations, int64_t count, int divide_by = 1);

}  // namespace lockstep::comms
