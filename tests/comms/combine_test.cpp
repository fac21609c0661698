#include "comms/combine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "comms/combine_oracle.h"
#include "comms/copy.h"
#include "lockstep/error.h"

namespace lockstep::comms {
namespace {

constexpr std::array kTypes{DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16,
                            DataType::kInt32,   DataType::kInt64,   DataType::kUInt8,   DataType::kBool};
constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                          ReduceOp::kMean};

/// Elements inside a larger block, `offset` elements after a boundary of 64 bytes, between bytes that nobody
/// may touch.
class Buffer {
 public:
  Buffer(DataType type, size_t count, size_t offset)
      : type_(type), count_(count), block_(count * size_of(type) + 320, kGuard) {
    const size_t past_boundary = reinterpret_cast<uintptr_t>(block_.data()) % 64;
    begin_ = 64 + (64 - past_boundary) % 64 + offset * size_of(type);
  }
  Buffer(Buffer&&) = default;
  Buffer(const Buffer&) = delete;

  std::byte* data() { return block_.data() + begin_; }
  std::vector<std::byte> contents() { return {data(), data() + count_ * size_of(type_)}; }
  bool guards_are_whole() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto begin = block_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(block_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(count_ * size_of(type_)), block_.end(), is_guard);
  }

 private:
  static constexpr std::byte kGuard{0xa5};
  DataType type_;
  size_t count_;
  std::vector<std::byte> block_;
  size_t begin_;
};

/// One call: `destinations` of -1 are buffers of their own, others the source of that index.
struct Case {
  DataType type;
  ReduceOp op;
  size_t sources;
  std::vector<int> destinations;
  size_t count;
  size_t offset = 0;  ///< Buffer k begins k * offset elements after a boundary.
  int divide_by = 1;

  friend void PrintTo(const Case& call, std::ostream* out) {
    *out << name(call.op) << " of " << call.count << " " << name(call.type) << ", sources " << call.sources
         << ", destinations " << testing::PrintToString(call.destinations) << ", offset " << call.offset
         << ", divided by " << call.divide_by;
  }
};

std::vector<Buffer> buffers(const Case& call, size_t count, size_t first) {
  std::vector<Buffer> all;
  for (size_t i = 0; i < count; ++i) {
    all.emplace_back(call.type, call.count, (first + i) * call.offset % (64 / size_of(call.type)));
  }
  return all;
}

/// The first fault that `combine` makes with this call; "" if none.
std::string fault(const Case& call, std::mt19937& random) {
  std::vector<Buffer> sources = buffers(call, call.sources, 0);
  std::vector<Buffer> others = buffers(call, call.destinations.size(), call.sources);
  std::vector<const void*> from;
  std::vector<const std::byte*> read;
  std::vector<std::vector<std::byte>> before;
  for (Buffer& source : sources) {
    oracle::fill(call.type, source.data(), call.count, random);
    from.push_back(source.data());
    read.push_back(source.data());
    before.push_back(source.contents());
  }
  std::vector<Buffer*> written;
  std::vector<void*> to;
  for (size_t i = 0; i < call.destinations.size(); ++i) {
    const int source = call.destinations[i];
    written.push_back(source < 0 ? &others[i] : &sources[static_cast<size_t>(source)]);
    to.push_back(written.back()->data());
  }
  const std::vector<std::byte> expected =
      oracle::combine(call.type, call.op, read, call.count, call.divide_by);

  combine(call.type, call.op, from, to, static_cast<int64_t>(call.count), call.divide_by);

  const size_t width = size_of(call.type);
  for (Buffer* buffer : written) {
    if (!buffer->guards_are_whole()) return "wrote outside of a destination";
    const std::vector<std::byte> found = buffer->contents();
    for (size_t i = 0; i < call.count; ++i) {
      const bool same =
          std::equal(found.data() + i * width, found.data() + (i + 1) * width, expected.data() + i * width);
      if (!same) return "element " + std::to_string(i) + " is wrong";
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].guards_are_whole()) return "wrote outside of a source";
    if (std::ranges::find(written, &sources[i]) == written.end() && sources[i].contents() != before[i]) {
      return "changed a source";
    }
  }
  return "";
}

/// Calls `visit(type, op, divide_by)` for whatever may be asked.
template <typename Visit>
void for_each_reduction(const Visit& visit) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      if (op != ReduceOp::kMean) {
        visit(type, op, 1);
      } else if (is_floating_point(type)) {
        for (const int divide_by : {1, 3, 4}) visit(type, op, divide_by);
      }
    }
  }
}

TEST(Combine, GivesTheBitsOfOneElementAtATime) {
  std::mt19937 random(1);
  for_each_reduction([&](DataType type, ReduceOp op, int divide_by) {
    for (size_t sources = 1; sources <= 5; ++sources) {
      for (size_t destinations = 1; destinations <= 3; ++destinations) {
        for (const size_t count : std::initializer_list<size_t>{0, 1, 3, 15, 16, 17, 63, 64, 65, 1000}) {
          const Case call{type, op, sources, std::vector<int>(destinations, -1), count, count % 4, divide_by};
          ASSERT_EQ(fault(call, random), "") << testing::PrintToString(call);
        }
      }
    }
  });
}

TEST(Combine, GivesTheSameBitsAtEveryAlignment) {
  std::mt19937 random(2);
  for_each_reduction([&](DataType type, ReduceOp op, int divide_by) {
    for (size_t offset = 0; offset <= 8; ++offset) {
      for (const size_t sources : std::initializer_list<size_t>{2, 3}) {
        const Case call{type, op, sources, {-1, -1}, 150, offset, divide_by};
        ASSERT_EQ(fault(call, random), "") << testing::PrintToString(call);
      }
    }
  });
}

TEST(Combine, MayStoreOverItsSources) {
  std::mt19937 random(3);
  const std::vector<std::pair<size_t, std::vector<int>>> shapes{{1, {0}},
                                                                {1, {-1, 0}},
                                                                {2, {0}},
                                                                {2, {1}},
                                                                {2, {0, 1}},
                                                                {2, {1, 0}},
                                                                {2, {-1, 0}},
                                                                {3, {0, 1, 2}},
                                                                {3, {2, 1, 0}},
                                                                {3, {1}},
                                                                {4, {3, 0}},
                                                                {4, {0, 1, 2, 3}},
                                                                {5, {2}},
                                                                {5, {-1, 4, 1}},
                                                                {5, {-1, -1, 3, 0}},
                                                                {5, {4, 3, 2, 1, 0}}};
  for_each_reduction([&](DataType type, ReduceOp op, int divide_by) {
    for (const auto& [sources, destinations] : shapes) {
      for (const size_t count : std::initializer_list<size_t>{1, 17, 1000}) {
        const Case call{type, op, sources, destinations, count, 1, divide_by};
        ASSERT_EQ(fault(call, random), "") << testing::PrintToString(call);
      }
    }
  });
}

TEST(Combine, GivesTheSameBitsInManyBlocks) {
  std::mt19937 random(4);
  for_each_reduction([&](DataType type, ReduceOp op, int divide_by) {
    for (const size_t count : std::initializer_list<size_t>{4095, 4096, 8193}) {
      for (const auto& destinations : {std::vector{-1, -1, -1}, {0, 1, 2}}) {
        const Case call{type, op, 3, destinations, count, 3, divide_by};
        ASSERT_EQ(fault(call, random), "") << testing::PrintToString(call);
      }
    }
  });
}

TEST(Combine, GivesTheSameBitsPastTheCaches) {
  std::mt19937 random(5);
  constexpr size_t kFloats = kLeastStreamedBytes / 4 + 1001;
  for (const Case& call : std::vector<Case>{
           {DataType::kFloat32, ReduceOp::kSum, 1, {-1}, kFloats, 1},
           {DataType::kFloat32, ReduceOp::kMean, 2, {-1, -1}, kFloats, 1, 3},   // lines out of step
           {DataType::kFloat32, ReduceOp::kMean, 3, {-1, -1}, kFloats, 16, 4},  // lines in step
           {DataType::kFloat32, ReduceOp::kSum, 2, {-1, -1, -1}, kFloats, 0},
           {DataType::kFloat32, ReduceOp::kSum, 2, {0, -1}, kFloats, 0},
           {DataType::kInt64, ReduceOp::kSum, 2, {-1}, kFloats / 2, 3},
           {DataType::kBFloat16, ReduceOp::kMean, 2, {-1, -1}, kFloats * 2, 3, 3},
       }) {
    ASSERT_EQ(fault(call, random), "") << testing::PrintToString(call);
  }
}

TEST(Combine, RoundsASumOfHalvesOnce) {
  // 2048 + 1 + 1 in float16: rounded after every step it stays 2048, rounded once it is 2050.
  const uint16_t large = oracle::kFloat16.encode(2048);
  const uint16_t one = oracle::kFloat16.encode(1);
  const std::array<const void*, 3> sources{&large, &one, &one};
  uint16_t result = 0;
  const std::array<void*, 1> destinations{&result};
  combine(DataType::kFloat16, ReduceOp::kSum, sources, destinations, 1);
  EXPECT_EQ(oracle::kFloat16.decode(result), 2050);
}

TEST(Combine, RoundsAMeanOfHalvesAfterItsDivision) {
  // 60000 + 60000 is infinite in float16; their mean is not.
  const uint16_t large = oracle::kFloat16.encode(60000);
  const std::array<const void*, 2> sources{&large, &large};
  uint16_t result = 0;
  const std::array<void*, 1> destinations{&result};
  combine(DataType::kFloat16, ReduceOp::kMean, sources, destinations, 1, 2);
  EXPECT_EQ(result, large);
}

TEST(Combine, WrapsIntegersAround) {
  const std::vector<int32_t> left(20, std::numeric_limits<int32_t>::max());
  const std::vector<int32_t> right(20, 1);
  std::vector<int32_t> result(20);
  const std::array<const void*, 2> sources{left.data(), right.data()};
  const std::array<void*, 1> destinations{result.data()};
  combine(DataType::kInt32, ReduceOp::kSum, sources, destinations, 20);
  EXPECT_THAT(result, testing::Each(std::numeric_limits<int32_t>::min()));
}

TEST(Combine, MakesEveryTrueByteOne) {
  const std::vector<uint8_t> left(40, 2);
  const std::vector<uint8_t> right(40, 4);
  std::vector<uint8_t> result(40);
  const std::array<const void*, 2> sources{left.data(), right.data()};
  const std::array<void*, 1> destinations{result.data()};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    combine(DataType::kBool, op, sources, destinations, 40);
    EXPECT_THAT(result, testing::Each(1)) << name(op);
  }
}

TEST(Combine, KeepsTheFirstOfSeveralNaNsAtEveryAlignment) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16}) {
    for (const ReduceOp op : kOps) {
      for (size_t offset = 0; offset < 8; ++offset) {
        for (const size_t count : std::initializer_list<size_t>{1, 7, 70}) {
          std::vector<std::byte> blocks[3];
          std::vector<const void*> sources;
          std::vector<const std::byte*> read;
          for (size_t k = 0; k < 3; ++k) {
            blocks[k].resize((offset + count) * size_of(type));
            for (size_t i = 0; i < offset + count; ++i) {
              const uint64_t bits = oracle::special(type, 6 + (i >> k) % 4, 1 + k);
              std::memcpy(&blocks[k][i * size_of(type)], &bits, size_of(type));
            }
            read.push_back(blocks[k].data() + offset * size_of(type));
            sources.push_back(read.back());
          }
          const auto expected = oracle::combine(type, op, read, count, 3);
          std::vector<std::byte> found(expected.size());
          const std::array<void*, 1> destinations{found.data()};
          combine(type, op, sources, destinations, static_cast<int64_t>(count), 3);
          ASSERT_EQ(found, expected) << name(op) << " of " << count << " " << name(type) << ", offset "
                                     << offset;
        }
      }
    }
  }
}

TEST(Combine, KeepsTheLeftOfTwoZeros) {
  const float zero = 0.0f;
  const float minus_zero = -0.0f;
  float result = 1;
  const std::array<const void*, 2> sources{&minus_zero, &zero};
  const std::array<void*, 1> destinations{&result};
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    combine(DataType::kFloat32, op, sources, destinations, 1);
    EXPECT_TRUE(std::signbit(result)) << name(op);
  }
}

TEST(Combine, RefusesTheMeanOfIntegersByName) {
  int32_t number = 1;
  const std::array<const void*, 1> sources{&number};
  const std::array<void*, 1> destinations{&number};
  for (const DataType type : {DataType::kInt32, DataType::kInt64, DataType::kUInt8, DataType::kBool}) {
    try {
      combine(type, ReduceOp::kMean, sources, destinations, 0, 2);
      FAIL() << "no refusal of " << name(type);
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("mean of " + std::string(name(type))));
    }
  }
}

}  // namespace
}  // namespace lockstep::comms
