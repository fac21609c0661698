#include "train/optim/kernels.h"

#include "train/optim/kernel_loops.h"

namespace lockstep::train::optim {

namespace {

template <typename T>
void adam(const AdamArrays<T>& arrays, const AdamRule<T>& rule, int64_t begin, int64_t end) {
  adam_loop(arrays, rule, begin, end);
}

template <typename T>
void sgd(const SgdArrays<T>& arrays, const SgdRule<T>& rule, int64_t begin, int64_t end) {
  sgd_loop(arrays, rule, begin, end);
}

template <typename T>
double sum_of_squares(const T* values, int64_t begin, int64_t end) {
  return square_loop(values, begin, end);
}

}  // namespace

const Kernels& portable_kernels() {
  static constexpr Kernels kPortable{
      .float32 = {.adam = adam<float>, .sgd = sgd<float>, .sum_of_squares = sum_of_squares<float>},
      .float64 = {.adam = adam<double>, .sgd = sgd<double>, .sum_of_squares = sum_of_squares<double>}};
  return kPortable;
}

const Kernels& kernels() {
  static const Kernels* const fastest = avx2_kernels() != nullptr ? avx2_kernels() : &portable_kernels();
  return *fastest;
}

}  // namespace lockstep::train::optim
