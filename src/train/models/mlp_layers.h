#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

namespace lockstep::train {

/// Layers `begin` to `end` (without it) of FullMLP(dim, depth, seed), with the ReLU after each but the last
/// of all: the same weights, whichever layers are made here. See FullMLP.
torch::nn::Sequential make_mlp_layers(int64_t dim, int64_t begin, int64_t end, int64_t depth, uint64_t seed);

/// The seed that models take if none is given: that of torch's default generator.
uint64_t default_seed();

}  // namespace lockstep::train
