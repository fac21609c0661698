#include "comms/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "comms/combine_oracle.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace lockstep::comms {
namespace {

constexpr size_t kHalves = 65536;

template <typename Half>
std::vector<Half> every_half() {
  std::vector<Half> all(kHalves);
  for (size_t i = 0; i < kHalves; ++i) all[i].bits = static_cast<uint16_t>(i);
  return all;
}

template <typename Half>
std::vector<uint16_t> narrowed(Narrow<Half> narrow_all, const std::vector<float>& from) {
  std::vector<Half> halves(from.size());
  narrow_all(from.data(), halves.data(), std::ssize(from));
  std::vector<uint16_t> bits;
  for (const Half half : halves) bits.push_back(half.bits);
  return bits;
}

template <typename Half>
std::vector<float> widened(Widen<Half> widen_all, const std::vector<Half>& from) {
  std::vector<float> to(from.size());
  widen_all(from.data(), to.data(), std::ssize(from));
  return to;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

/// All halves, what lies in the middle between two, their neighbours, and a million others, NaN among them.
std::vector<float> telling_floats(const oracle::HalfFormat& format) {
  std::vector<float> all;
  for (uint32_t bits = 0; bits < kHalves; ++bits) {
    const float value = format.decode(static_cast<uint16_t>(bits));
    const float next = format.decode(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((static_cast<double>(value) + static_cast<double>(next)) / 2);
    for (const float x : {value, middle}) {
      all.insert(all.end(), {x, std::nextafter(x, INFINITY), std::nextafter(x, -INFINITY)});
    }
  }
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 4093) {
    const auto low = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &low, sizeof value);
    all.push_back(value);
  }
  return all;
}

/// Claims of one half type and one set of kernels.
template <typename Half>
struct Conversion {
  const char* name;
  oracle::HalfFormat format;
  Widen<Half> widen_all;
  Narrow<Half> narrow_all;
};

template <typename Visit>
void for_each_conversion(const Visit& visit) {
  for (const Kernels* set : {&portable_kernels(), &kernels()}) {
    const bool portable = set == &portable_kernels();
    visit(Conversion<Float16>{portable ? "portable float16" : "fastest float16", oracle::kFloat16,
                              set->widen_float16, set->narrow_float16});
    visit(Conversion<BFloat16>{portable ? "portable bfloat16" : "fastest bfloat16", oracle::kBFloat16,
                               set->widen_bfloat16, set->narrow_bfloat16});
  }
}

template <typename Half>
void check_round_trip(const Conversion<Half>& conversion) {
  const std::vector<float> wide = widened(conversion.widen_all, every_half<Half>());
  const std::vector<uint16_t> back = narrowed(conversion.narrow_all, wide);
  for (size_t i = 0; i < kHalves; ++i) {
    const float expected = conversion.format.decode(static_cast<uint16_t>(i));
    ASSERT_EQ(std::memcmp(&wide[i], &expected, sizeof expected), 0) << conversion.name << " " << i;
    const int quiet = std::isnan(expected) ? 1 << (conversion.format.mantissa_bits - 1) : 0;
    ASSERT_EQ(back[i], i | static_cast<size_t>(quiet)) << conversion.name;
  }
}

TEST(Kernels, BringEveryHalfToFloat32AndBack) {
  for_each_conversion([](const auto& conversion) { check_round_trip(conversion); });
}

TEST(Kernels, RoundToTheNearestHalfAndTiesToEven) {
  for_each_conversion([](const auto& conversion) {
    const std::vector<float> values = telling_floats(conversion.format);
    const std::vector<uint16_t> found = narrowed(conversion.narrow_all, values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(found[i], conversion.format.encode(values[i])) << conversion.name << " " << values[i];
    }
  });
}

TEST(Kernels, ConvertHalvesToTheSameBitsInEverySet) {
  const Kernels& plain = portable_kernels();
  const Kernels& fast = kernels();
  EXPECT_EQ(bits_of(widened(plain.widen_float16, every_half<Float16>())),
            bits_of(widened(fast.widen_float16, every_half<Float16>())));
  EXPECT_EQ(bits_of(widened(plain.widen_bfloat16, every_half<BFloat16>())),
            bits_of(widened(fast.widen_bfloat16, every_half<BFloat16>())));
  const std::vector<float> values = telling_floats(oracle::kFloat16);
  EXPECT_EQ(narrowed(plain.narrow_float16, values), narrowed(fast.narrow_float16, values));
  EXPECT_EQ(narrowed(plain.narrow_bfloat16, values), narrowed(fast.narrow_bfloat16, values));
}

#ifdef __SSE2__
TEST(Kernels, KeepDenormalFloat16WhereFloat32FlushesThem) {
  const unsigned control = _mm_getcsr();
  _mm_setcsr(control | 0x8040);  // flush to zero, denormals are zero
  for_each_conversion([](const auto& conversion) {
    if constexpr (std::is_same_v<std::decay_t<decltype(conversion)>, Conversion<Float16>>) {
      check_round_trip(conversion);
    }
  });
  _mm_setcsr(control);
}
#endif

TEST(Kernels, FoldToTheSameBitsInEverySet) {
  std::mt19937 random(6);
  constexpr size_t kCount = 1003;
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64, DataType::kInt32, DataType::kInt64,
                              DataType::kUInt8, DataType::kBool}) {
    const size_t width = size_of(type);
    std::vector<std::byte> left(kCount * width);
    std::vector<std::byte> right(kCount * width);
    oracle::fill(type, left.data(), kCount, random);
    oracle::fill(type, right.data(), kCount, random);
    for (int op = 0; op <= static_cast<int>(FoldOp::kSumThenDivide); ++op) {
      const Fold plain = portable_kernels().fold(type, static_cast<FoldOp>(op));
      const Fold fast = kernels().fold(type, static_cast<FoldOp>(op));
      ASSERT_EQ(plain == nullptr, fast == nullptr);
      if (plain == nullptr) continue;
      std::vector<std::byte> expected(kCount * width);
      std::vector<std::byte> found(kCount * width);
      plain(left.data(), right.data(), expected.data(), nullptr, kCount, 3);
      fast(left.data(), right.data(), found.data(), nullptr, kCount, 3);
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(std::memcmp(&expected[i * width], &found[i * width], width), 0)
            << name(type) << ", fold " << op << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comms
