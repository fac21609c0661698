#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// What a buffer's elements are. `kFloat16` is IEEE half, `kBFloat16` the upper half of a float32, `kBool`
/// one byte of 0 or 1.
enum class DataType : uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8, kBool };

/// How contributions become one. Half types are added in float32 and rounded once. NaN wins, of several
/// the first in the plan's order; so does the first of 0 and -0 in min and max. Of bool, sum and max are
/// "or", product and min are "and". The mean is for floating-point types only.
enum class ReduceOp : uint8_t { kSum, kProduct, kMin, kMax, kMean };

std::size_t size_of(DataType type);
bool is_floating_point(DataType type);

/// "float32", "bfloat16", ...: torch's names.
std::string_view name(DataType type);
/// "sum", "product", "min", "max", "mean".
std::string_view name(ReduceOp op);

}  // namespace lockstep
