#pragma once

#include <functional>
#include <string>

#include "lockstep/comms/communicator.h"

namespace lockstep::test {

/// Something that happens on one rank in the middle of training.
struct Mishap {
  int rank = 1;
  int step = 2;  ///< From 1; the first finds out the shapes.
  bool in_backward = false;
  int microbatch = 2;
  std::function<void()> act;
};

constexpr int kMishapMicrobatches = 4;

/// Trains by a schedule, a stage per rank, until the mishap's error comes: throws it.
void train_into(Communicator& comm, const std::string& schedule, const Mishap& mishap);

}  // namespace lockstep::test
