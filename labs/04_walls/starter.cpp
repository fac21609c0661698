// Lesson 4: the data wall and the memory wall.
//
// Before you buy or borrow a machine, estimate: how many bytes does training take, how many days, how many
// ranks? Six small functions. The check compares them with a real training run whose allocator counts, and
// prints the table of the lesson with your numbers.
//
// What you have: Memory{weights, gradients, optimizer}, in bytes, and its total() (labs/04_walls/memory.h).
// The lesson:    lockstep lab read 4
// A hint:        lockstep lab hint 4
// Your verdict:  lockstep lab check 4
#include <cstdint>
#include <span>

#include "04_walls/memory.h"

namespace my_work {

/// Parameters of a multilayer perceptron: widths[0] inputs, then a linear layer with a bias from each width
/// to the next one.
std::int64_t parameter_count(std::span<const std::int64_t> widths) {
  (void)widths;
  return 0;
}

/// What training by Adam keeps for so many parameters, each number of `bits` bits: weights, gradients, and
/// Adam's two moments.
lab::Memory model_memory(std::int64_t parameters, int bits) {
  (void)parameters;
  (void)bits;
  return {};
}

/// What forward leaves for backward: for each sample of the batch the input and every layer's output.
std::int64_t activation_bytes(std::span<const std::int64_t> widths, std::int64_t batch, int bits) {
  (void)widths;
  (void)batch;
  (void)bits;
  return 0;
}

/// The same in gigabytes: 1 GB is 10^9 bytes.
double gigabytes(std::int64_t bytes) {
  (void)bytes;
  return 0;
}

/// Days on one GPU. Forward takes 2 floating-point operations for each parameter and sample (a product and a
/// sum), backward twice as many: once for the weights, once for the inputs.
double days_to_train(double parameters, double samples, double flops_per_second) {
  (void)parameters;
  (void)samples;
  (void)flops_per_second;
  return 0;
}

/// The least number of cards that hold so many bytes together, if one can cut them as one likes.
std::int64_t ranks_needed(std::int64_t bytes, std::int64_t bytes_of_a_card) {
  (void)bytes;
  (void)bytes_of_a_card;
  return 0;
}

}  // namespace my_work
