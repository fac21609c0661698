#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/comms/communicator.h"

namespace lockstep::cli {

/// A rank's buffers of one size on one engine.
struct Buffers {
  float* input = nullptr;
  float* output = nullptr;  ///< For what does not work in place; world times as large.
  int64_t count = 0;        ///< Of the input.
};

/// One collective: what to call, what is right, how much it moves.
struct Kind {
  std::function<void(Communicator&, const Buffers&, const CallOptions&)> call;
  /// Fills the input; element i of rank r.
  std::function<float(int rank, int64_t element)> value;
  /// What `result` must hold on this rank.
  std::function<float(int rank, int world, int64_t count, int64_t element)> expected;
  bool in_place = true;
  int64_t result_per_input = 1;  ///< Elements of the result, times world if < 0.
  double bus_factor = 1;
};

/// By the benchmark's name: allreduce, ..., pingpong.
Kind kind_of(const std::string& collective, int world);

}  // namespace lockstep::cli
