#include "train/optim/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace lockstep::train::optim {
namespace {

template <typename T>
using Values = std::vector<T>;

/// Of many sizes and signs, with what is special at the front.
template <typename T>
Values<T> draw(size_t count, uint32_t seed, bool positive = false) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> sizes(0, 4);
  Values<T> values(count);
  for (auto& value : values) {
    const double size = std::exp2(sizes(bits) * 4);
    value = static_cast<T>(positive || bits() % 2 == 0 ? size : -size);
  }
  const T special[] = {0, positive ? T{0} : -T{0}, std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::infinity(), std::numeric_limits<T>::max()};
  for (size_t i = 0; i < std::size(special) && i < count; ++i) values[(i * 7 + seed) % count] = special[i];
  return values;
}

/// Equal bits; a NaN is as good as another.
template <typename T>
void expect_same(const Values<T>& left, const Values<T>& right) {
  for (size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(left[i]) && std::isnan(right[i])) continue;
    EXPECT_EQ(std::memcmp(&left[i], &right[i], sizeof(T)), 0)
        << "at " << i << ": " << left[i] << " and " << right[i];
  }
}

template <typename T>
struct Memory {
  Values<T> parameter = draw<T>(133, 1), gradient = draw<T>(133, 2), first = draw<T>(133, 3),
            second = draw<T>(133, 4, true), largest = draw<T>(133, 5, true);

  void expect_equal(const Memory& other) const {
    expect_same(parameter, other.parameter);
    expect_same(gradient, other.gradient);
    expect_same(first, other.first);
    expect_same(second, other.second);
    expect_same(largest, other.largest);
  }
};

template <typename T>
class OptimKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (avx2_kernels() == nullptr) GTEST_SKIP() << "this CPU, or this build, has no AVX2: nothing to compare";
  }

  /// Runs both sets of kernels on [begin, end) and compares all memory.
  template <typename Run>
  void compare(const Run& run) {
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 133}, {0, 0}, {1, 130}, {5, 6}, {64, 133}}) {
      Memory<T> plain;
      Memory<T> fast;
      run(portable_kernels().of<T>(), plain, begin, end);
      run(avx2_kernels()->of<T>(), fast, begin, end);
      plain.expect_equal(fast);
    }
  }
};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(OptimKernels, Types);

template <typename T>
AdamRule<T> some_adam(T weight_decay, T shrink) {
  return {.shrink = shrink,
          .weight_decay = weight_decay,
          .beta1 = T(0.9),
          .one_minus_beta1 = T(0.1),
          .beta2 = T(0.999),
          .one_minus_beta2 = T(0.001),
          .root_scale = T(3.7),
          .eps = T(1e-8),
          .step_size = T(0.0123)};
}

TYPED_TEST(OptimKernels, AdamGivesTheSameBitsWithAndWithoutAvx2) {
  using T = TypeParam;
  for (const bool keeps_max : {false, true}) {
    for (const T decay : {T(0), T(0.01)}) {
      this->compare([&](const KernelsOf<T>& kernels, Memory<T>& memory, int64_t begin, int64_t end) {
        kernels.adam({.parameter = memory.parameter.data(),
                      .gradient = memory.gradient.data(),
                      .exp_avg = memory.first.data(),
                      .exp_avg_sq = memory.second.data(),
                      .max_exp_avg_sq = keeps_max ? memory.largest.data() : nullptr},
                     some_adam<T>(decay, T(1) - decay), begin, end);
      });
    }
  }
}

TYPED_TEST(OptimKernels, SgdGivesTheSameBitsWithAndWithoutAvx2) {
  using T = TypeParam;
  for (int variant = 0; variant < 16; ++variant) {
    const SgdRule<T> rule{.weight_decay = (variant & 1) != 0 ? T(0.1) : T(0),
                          .momentum = T(0.9),
                          .one_minus_dampening = T(0.7),
                          .lr = T(0.03),
                          .nesterov = (variant & 2) != 0,
                          .first = (variant & 4) != 0};
    this->compare([&](const KernelsOf<T>& kernels, Memory<T>& memory, int64_t begin, int64_t end) {
      kernels.sgd({.parameter = memory.parameter.data(),
                   .gradient = memory.gradient.data(),
                   .momentum_buffer = (variant & 8) != 0 ? memory.first.data() : nullptr},
                  rule, begin, end);
    });
  }
}

TYPED_TEST(OptimKernels, SquaresGiveTheSameBitsWithAndWithoutAvx2) {
  using T = TypeParam;
  std::mt19937 bits(3);
  std::normal_distribution<double> normal;
  Values<T> values(5000);
  for (auto& value : values) value = static_cast<T>(normal(bits));
  for (const int64_t count : {0, 1, 15, 16, 17, 31, 100, 4096, 4999}) {
    const double plain = portable_kernels().of<T>().sum_of_squares(values.data(), 1, 1 + count);
    EXPECT_EQ(plain, avx2_kernels()->of<T>().sum_of_squares(values.data(), 1, 1 + count)) << count;
  }
}

TYPED_TEST(OptimKernels, LeaveAloneWhatIsOutsideTheRange) {
  using T = TypeParam;
  Memory<T> memory;
  const Memory<T> before;
  kernels().of<T>().adam({.parameter = memory.parameter.data(),
                          .gradient = memory.gradient.data(),
                          .exp_avg = memory.first.data(),
                          .exp_avg_sq = memory.second.data(),
                          .max_exp_avg_sq = memory.largest.data()},
                         some_adam<T>(T(0.1), T(1)), 40, 90);
  for (auto* values : {&memory.parameter, &memory.first, &memory.second, &memory.largest}) {
    const auto& old = values == &memory.parameter ? before.parameter
                      : values == &memory.first   ? before.first
                      : values == &memory.second  ? before.second
                                                  : before.largest;
    expect_same(Values<T>(values->begin(), values->begin() + 40), Values<T>(old.begin(), old.begin() + 40));
    expect_same(Values<T>(values->begin() + 90, values->end()), Values<T>(old.begin() + 90, old.end()));
  }
}

}  // namespace
}  // namespace lockstep::train::optim
