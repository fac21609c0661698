#pragma once

#include <cstddef>
#include <cstdint>

#include "comms/half.h"
#include "lockstep/comms/types.h"

namespace lockstep::comms {

/// A fold and what follows it. The last two are for floating-point types, and fold as sum does.
enum class FoldOp : uint8_t { kSum, kProduct, kMin, kMax, kSumThenMultiply, kSumThenDivide };

/// c[i] = d[i] = a[i] op b[i], then multiplied with or divided by `factor` if `op` says so; d may be null.
/// Each of a and b is equal to one of c and d or apart from both.
using Fold = void (*)(const void* a, const void* b, void* c, void* d, int64_t count, double factor);

template <typename Half>
using Widen = void (*)(const Half* from, float* to, int64_t count);
template <typename Half>
using Narrow = void (*)(const float* from, Half* to, int64_t count);

/// The inner loops. Every set of them gives the same bits.
struct Kernels {
  Fold (*fold)(DataType type, FoldOp op);  ///< Null for half types and for what `type` has not.
  Widen<Float16> widen_float16;
  Widen<BFloat16> widen_bfloat16;
  Narrow<Float16> narrow_float16;
  Narrow<BFloat16> narrow_bfloat16;
  /// A fold and a copy whose stores go past the caches; null where there is no such way. Before another
  /// thread is told of them, `finish_streams` has to run.
  Fold (*streamed_fold)(DataType type, FoldOp op);
  void (*stream)(void* to, const void* from, std::size_t bytes);
  void (*finish_streams)();
};

/// Plain C++, for any CPU.
const Kernels& portable_kernels();

/// The fastest that this CPU and this build have.
const Kernels& kernels();

}  // namespace lockstep::comms
