#include "comms/combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "comms/copy.h"
#include "comms/kernels.h"
#include "lockstep/error.h"

namespace lockstep::comms {

namespace {

/// Sources are reduced in blocks of so many bytes, few enough for the L1 cache.
constexpr int64_t kBlockBytes = 4096;

struct Task {
  DataType type;
  std::span<const void* const> sources;
  std::span<void* const> destinations;
  int64_t element_bytes;
  Fold fold;       ///< Between the first source and the last.
  Fold last_fold;  ///< With the last source; of a mean, it divides.
  double factor;
  int divide_by;

  const std::byte* source(size_t index, int64_t at) const {
    return static_cast<const std::byte*>(sources[index]) + at * element_bytes;
  }
  std::byte* destination(size_t index, int64_t at) const {
    return static_cast<std::byte*>(destinations[index]) + at * element_bytes;
  }
};

/// From `result` to the destinations from `first` on.
void store(const Task& task, const void* result, size_t first, int64_t at, int64_t count) {
  const auto bytes = static_cast<size_t>(count * task.element_bytes);
  for (size_t i = first; i < task.destinations.size(); ++i) {
    std::byte* const to = task.destination(i, at);
    if (to != result) std::memcpy(to, result, bytes);
  }
}

/// Two sources and two destinations, the common case, are one pass without an intermediate buffer.
void combine_block(const Task& task, int64_t at, int64_t count) {
  alignas(64) std::byte partial[kBlockBytes];
  const size_t last = task.sources.size() - 1;
  const void* left = task.source(0, at);
  for (size_t i = 1; i < last; ++i) {
    task.fold(left, task.source(i, at), partial, nullptr, count, 1);
    left = partial;
  }
  std::byte* const first = task.destination(0, at);
  std::byte* const second = task.destinations.size() > 1 ? task.destination(1, at) : nullptr;
  task.last_fold(left, task.source(last, at), first, second, count, task.factor);
  store(task, first, 2, at, count);
}

template <typename T>
void divide(T* data, int64_t count, int by) {
  for (int64_t i = 0; i < count; ++i) data[i] /= static_cast<T>(by);
}

template <typename Half>
void combine_half_block(const Task& task, Widen<Half> widen_all, Narrow<Half> narrow_all, int64_t at,
                        int64_t count) {
  constexpr int64_t kBlock = kBlockBytes / static_cast<int64_t>(sizeof(Half));
  alignas(64) float left[kBlock];
  alignas(64) float right[kBlock];
  alignas(64) Half result[kBlock];
  const size_t last = task.sources.size() - 1;
  widen_all(reinterpret_cast<const Half*>(task.source(0, at)), left, count);
  for (size_t i = 1; i <= last; ++i) {
    widen_all(reinterpret_cast<const Half*>(task.source(i, at)), right, count);
    (i < last ? task.fold : task.last_fold)(left, right, left, nullptr, count, task.factor);
  }
  if (last == 0) divide(left, count, task.divide_by);
  narrow_all(left, result, count);
  store(task, result, 0, at, count);
}

void divide_block(const Task& task, int64_t at, int64_t count) {
  alignas(64) std::byte result[kBlockBytes];
  std::memcpy(result, task.source(0, at), static_cast<size_t>(count * task.element_bytes));
  if (task.type == DataType::kFloat64) {
    divide(reinterpret_cast<double*>(result), count, task.divide_by);
  } else {
    divide(reinterpret_cast<float*>(result), count, task.divide_by);
  }
  store(task, result, 0, at, count);
}

void combine_one_block(const Task& task, int64_t at, int64_t count) {
  if (task.type == DataType::kFloat16) {
    combine_half_block<Float16>(task, kernels().widen_float16, kernels().narrow_float16, at, count);
  } else if (task.type == DataType::kBFloat16) {
    combine_half_block<BFloat16>(task, kernels().widen_bfloat16, kernels().narrow_bfloat16, at, count);
  } else if (task.sources.size() == 1) {
    divide_block(task, at, count);
  } else {
    combine_block(task, at, count);
  }
}

FoldOp fold_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return FoldOp::kSum;
    case ReduceOp::kProduct:
      return FoldOp::kProduct;
    case ReduceOp::kMin:
      return FoldOp::kMin;
    case ReduceOp::kMax:
      return FoldOp::kMax;
  }
  throw UsageError(fmt::format("combine: op {} is none; hint: use a name of ReduceOp", static_cast<int>(op)));
}

void check(DataType type, ReduceOp op, std::span<const void* const> sources, int divide_by) {
  if (op == ReduceOp::kMean && !is_floating_point(type)) {
    throw UsageError(fmt::format(
        "combine: mean of {}, expected a floating-point type; hint: take the sum and divide it", name(type)));
  }
  if (sources.empty()) throw UsageError("combine: no source; hint: name at least one");
  if (divide_by < 1) throw UsageError(fmt::format("combine: divide_by is {}, expected 1 or more", divide_by));
}

/// Whether stores past the caches are the faster ones: for large results in one pass, over lines that were
/// not just read.
bool should_stream(DataType type, std::span<const void* const> sources, std::span<void* const> destinations,
                   size_t bytes) {
  if (kernels().streamed_fold == nullptr || bytes < kLeastStreamedBytes || size_of(type) == 2) return false;
  return sources.size() > 1 && destinations.size() <= 2 &&
         std::none_of(destinations.begin(), destinations.end(), [&](const void* destination) {
           return std::find(sources.begin(), sources.end(), destination) != sources.end();
         });
}

}  // namespace

void combine(DataType type, ReduceOp op, std::span<const void* const> sources,
             std::span<void* const> destinations, int64_t count, int divide_by) {
  check(type, op, sources, divide_by);
  if (count <= 0 || destinations.empty()) return;
  const bool divides = op == ReduceOp::kMean && divide_by != 1;
  const auto element_bytes = static_cast<int64_t>(size_of(type));
  const auto bytes = static_cast<size_t>(count * element_bytes);
  if (sources.size() == 1 && !divides) {
    for (void* const destination : destinations) copy(destination, sources[0], bytes);
    return;
  }
  // The reciprocal of a power of two is exact, so multiplying with it gives the bits of the division, sooner.
  const bool multiplies = std::has_single_bit(static_cast<unsigned>(divide_by));
  const FoldOp last_op =
      !divides ? fold_op(op) : (multiplies ? FoldOp::kSumThenMultiply : FoldOp::kSumThenDivide);
  const DataType folded_type = element_bytes == 2 ? DataType::kFloat32 : type;
  const bool streams = should_stream(type, sources, destinations, bytes);
  const Task task{.type = type,
                  .sources = sources,
                  .destinations = destinations,
                  .element_bytes = element_bytes,
                  .fold = kernels().fold(folded_type, fold_op(op)),
                  .last_fold = (streams ? kernels().streamed_fold : kernels().fold)(folded_type, last_op),
                  .factor = multiplies ? 1.0 / divide_by : divide_by,
                  .divide_by = divides ? divide_by : 1};
  const int64_t block = kBlockBytes / element_bytes;
  for (int64_t at = 0; at < count; at += block) combine_one_block(task, at, std::min(block, count - at));
  if (streams) kernels().finish_streams();
}

}  // namespace lockstep::comms
