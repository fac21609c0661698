#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "07_primitives/check.h"
#include "lab/sums.h"

namespace lab::primitives {

/// A call of one of the functions, on all ranks.
struct Case {
  int world = 1;
  int root = 0;
  size_t count = 0;  ///< Floats in `data` or in a part.
  bool rendezvous = false;
};

/// What a call left: what was handed in to be read, and what it was to write, by rank.
struct Left {
  Report report;
  std::vector<GuardedFloats> in, out;
};

/// What a call may cost; -1 where nothing is promised.
struct Limits {
  int64_t messages = -1;       ///< Of all ranks together.
  int64_t bytes = -1;          ///< Of all ranks together.
  int64_t root_sends = -1;     ///< Bytes.
  int64_t root_receives = -1;  ///< Bytes.
  int64_t rank_sends = -1;     ///< Bytes, of the busiest rank.
  int rounds = -1;
};

/// One of the functions, as its check needs it.
struct Primitive {
  std::string name;
  std::string to_root = {};  ///< `from` or `to`; "" if it has no root.
  std::function<void(Rank&, std::span<const float> in, std::span<float> out, int root)> call;
  std::function<Left(const Case&)> prepare;  ///< The buffers before the call.
  std::function<Limits(const Case&)> limits;
  std::string rounds_hint = {}, bytes_hint = {};
  std::function<std::optional<Failure>(const Case&, const Left&)> judge;  ///< Of the data.
};

/// Runs a function in all worlds, judges what it left and what it cost.
void check_primitive(Checker& checker, const Primitive& primitive);

void check_trees(const Seam& seam, Checker& checker);  ///< broadcast and reduce
void check_parts(const Seam& seam, Checker& checker);  ///< scatter, gather, all_gather
void check_barrier(const Seam& seam, Checker& checker);

inline size_t index(int rank) {
  return static_cast<size_t>(rank);
}
/// ceil(log2 P)
int rounds_of(int world);
int64_t messages(const Report& report);

/// Element i of rank or part k, one of its own for each; never whole, and nothing that 16 bits hold.
float value(int k, size_t i);
std::vector<GuardedFloats> empty_rows(int world);
GuardedFloats values(int k, size_t count);
/// Whose element a value is.
struct Origin {
  int k;
  size_t element;
};
std::optional<Origin> origin_of(float found, int world, size_t count);

/// `broadcast from rank 2 of 5, 12 floats`
std::string described(const Primitive& primitive, const Case& one);

}  // namespace lab::primitives
