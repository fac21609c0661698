#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <vector>

#include "lockstep/parallel/ddp/any_model.h"

// What the demonstrations and analyses of data parallel training have in common.
namespace lockstep::ddp {

/// Random, of the width that the model's first weight takes; the same on all ranks for the same seed.
at::Tensor sample_input(const AnyModel& model, int64_t batch, uint64_t seed);

/// Lets go of all gradients.
void drop_gradients(torch::nn::Module& module);

double median(std::vector<double> values);

template <typename Act>
double milliseconds_of(const Act& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace lockstep::ddp
