#include "train/optim/kernel_loops.h"
#include "train/optim/kernels.h"

namespace lockstep::train::optim {

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)

namespace {

#define LOCKSTEP_OPTIM_AVX2 [[gnu::target("avx2")]]

template <typename T>
LOCKSTEP_OPTIM_AVX2 void adam(const AdamArrays<T>& arrays, const AdamRule<T>& rule, int64_t begin,
                              int64_t end) {
  adam_loop(arrays, rule, begin, end);
}

template <typename T>
LOCKSTEP_OPTIM_AVX2 void sgd(const SgdArrays<T>& arrays, const SgdRule<T>& rule, int64_t begin, int64_t end) {
  sgd_loop(arrays, rule, begin, end);
}

template <typename T>
LOCKSTEP_OPTIM_AVX2 double sum_of_squares(const T* values, int64_t begin, int64_t end) {
  return square_loop(values, begin, end);
}

}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kAvx2{
      .float32 = {.adam = adam<float>, .sgd = sgd<float>, .sum_of_squares = sum_of_squares<float>},
      .float64 = {.adam = adam<double>, .sgd = sgd<double>, .sum_of_squares = sum_of_squares<double>}};
  return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr;
}

#else

const Kernels* avx2_kernels() {
  return nullptr;
}

#endif

}  // namespace lockstep::train::optim
