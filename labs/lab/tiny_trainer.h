#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace lab {

/// All that a training is, between two steps. Whoever has it can go on as if nothing had happened.
struct TrainState {
  int64_t step = 0;             ///< Steps done; the learning rate depends on it.
  uint64_t rng = 1;             ///< Of the random numbers: where they go on.
  std::vector<float> weights;   ///< Of a linear model.
  std::vector<float> momentum;  ///< The optimizer's: a fading sum of the gradients so far.

  bool operator==(const TrainState&) const = default;
};

/// The next random number in [0, 1), by SplitMix64; moves `rng`.
inline float next_random(uint64_t& rng) {
  uint64_t mixed = rng += 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return static_cast<float>((mixed ^ (mixed >> 31)) >> 40) * 0x1p-24F;
}

inline TrainState start_training(uint64_t seed) {
  TrainState state{.rng = seed};
  state.weights.assign(24, 0);
  state.momentum.assign(24, 0);
  return state;
}

/// One step of SGD with momentum on one sample, whose inputs are drawn; returns its loss. A function of the
/// state alone.
inline double train_step(TrainState& state) {
  std::vector<float> input(state.weights.size());
  float output = 0, target = 0;
  for (size_t i = 0; i < input.size(); ++i) {
    input[i] = 2 * next_random(state.rng) - 1;
    output += state.weights[i] * input[i];
    target += static_cast<float>(i % 5) * input[i];
  }
  const float error = output - target;
  const float lr = 0.02F / (1 + static_cast<float>(state.step) / 100);
  for (size_t i = 0; i < input.size(); ++i) {
    state.momentum[i] = 0.9F * state.momentum[i] + 2 * error * input[i];
    state.weights[i] -= lr * state.momentum[i];
  }
  ++state.step;
  return error * error;
}

}  // namespace lab
