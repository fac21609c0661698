#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "comms/half.h"
#include "comms/kernels.h"

/// The loops of the kernels, in plain C++. They are inlined into functions that say which instructions the
/// compiler may use, and vectorised there.
namespace lockstep::comms {

#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

// Iterations are independent even if an output is an input: then they are equal, element for element.
#ifdef __clang__
#define LOCKSTEP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif

/// One byte; every value but 0 is true.
enum class Bool : uint8_t {};

template <FoldOp op>
LOCKSTEP_INLINE Bool fold_one(Bool a, Bool b) {
  const bool x = static_cast<uint8_t>(a) != 0;
  const bool y = static_cast<uint8_t>(b) != 0;
  return static_cast<Bool>(op == FoldOp::kProduct || op == FoldOp::kMin ? x & y : x | y);
}

/// Integers wrap around.
template <FoldOp op, std::integral T>
LOCKSTEP_INLINE T fold_one(T a, T b) {
  if constexpr (op == FoldOp::kMin) return b < a ? b : a;
  if constexpr (op == FoldOp::kMax) return b > a ? b : a;
  using Unsigned = std::make_unsigned_t<T>;
  const auto x = static_cast<Unsigned>(a);
  const auto y = static_cast<Unsigned>(b);
  return static_cast<T>(op == FoldOp::kProduct ? x * y : x + y);
}

/// NaN wins; of two, and of equal numbers in min and max, such as 0 and -0, the left one does.
template <FoldOp op, std::floating_point T>
LOCKSTEP_INLINE T fold_one(T a, T b) {
  if constexpr (op == FoldOp::kMin) return a == a && !(a <= b) ? b : a;
  if constexpr (op == FoldOp::kMax) return a == a && !(a >= b) ? b : a;
  // Compilers swap the operands of + and *, and which of two NaNs survives depends on their order: a NaN on
  // the left is folded with itself.
  const T other = a == a ? b : a;
  return op == FoldOp::kProduct ? a * other : a + other;
}

template <FoldOp op, typename T>
LOCKSTEP_INLINE T finish(T folded, [[maybe_unused]] double factor) {
  if constexpr (op == FoldOp::kSumThenMultiply) return folded * static_cast<T>(factor);
  if constexpr (op == FoldOp::kSumThenDivide) return folded / static_cast<T>(factor);
  return folded;
}

template <FoldOp op, typename T>
LOCKSTEP_INLINE void fold_loop(const void* a, const void* b, void* c, void* d, int64_t count, double factor) {
  const auto* const x = static_cast<const T*>(a);
  const auto* const y = static_cast<const T*>(b);
  auto* const first = static_cast<T*>(c);
  auto* const second = static_cast<T*>(d);
  if (second == nullptr) {
    LOCKSTEP_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) first[i] = finish<op>(fold_one<op>(x[i], y[i]), factor);
  } else {
    LOCKSTEP_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      const T folded = finish<op>(fold_one<op>(x[i], y[i]), factor);
      first[i] = folded;
      second[i] = folded;
    }
  }
}

template <typename Half>
LOCKSTEP_INLINE void widen_loop(const Half* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
}

template <typename Half>
LOCKSTEP_INLINE void narrow_loop(const float* __restrict from, Half* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) narrow(from[i], to[i]);
}

/// The fold of one type and op, out of `Set`, which has `fold<op, T>` for each.
template <typename Set, typename T>
Fold fold_of(FoldOp op) {
  switch (op) {
    case FoldOp::kSum:
      return Set::template fold<FoldOp::kSum, T>;
    case FoldOp::kProduct:
      return Set::template fold<FoldOp::kProduct, T>;
    case FoldOp::kMin:
      return Set::template fold<FoldOp::kMin, T>;
    case FoldOp::kMax:
      return Set::template fold<FoldOp::kMax, T>;
    case FoldOp::kSumThenMultiply:
      if constexpr (std::is_floating_point_v<T>) return Set::template fold<FoldOp::kSumThenMultiply, T>;
      break;
    case FoldOp::kSumThenDivide:
      if constexpr (std::is_floating_point_v<T>) return Set::template fold<FoldOp::kSumThenDivide, T>;
      break;
  }
  return nullptr;
}

template <typename Set>
Fold fold_of(DataType type, FoldOp op) {
  switch (type) {
    case DataType::kFloat32:
      return fold_of<Set, float>(op);
    case DataType::kFloat64:
      return fold_of<Set, double>(op);
    case DataType::kInt32:
      return fold_of<Set, int32_t>(op);
    case DataType::kInt64:
      return fold_of<Set, int64_t>(op);
    case DataType::kUInt8:
      return fold_of<Set, uint8_t>(op);
    case DataType::kBool:
      return fold_of<Set, Bool>(op);
    case DataType::kFloat16:
    case DataType::kBFloat16:
      break;
  }
  return nullptr;
}

}  // namespace lockstep::comms
