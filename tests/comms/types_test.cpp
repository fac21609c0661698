#include "lockstep/comms/types.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(DataType, HasTheNameThatTorchGivesIt) {
  EXPECT_EQ(name(DataType::kFloat32), "float32");
  EXPECT_EQ(name(DataType::kFloat64), "float64");
  EXPECT_EQ(name(DataType::kFloat16), "float16");
  EXPECT_EQ(name(DataType::kBFloat16), "bfloat16");
  EXPECT_EQ(name(DataType::kInt32), "int32");
  EXPECT_EQ(name(DataType::kInt64), "int64");
  EXPECT_EQ(name(DataType::kUInt8), "uint8");
  EXPECT_EQ(name(DataType::kBool), "bool");
}

TEST(DataType, HasTheSizeOfItsCounterpart) {
  EXPECT_EQ(size_of(DataType::kFloat32), sizeof(float));
  EXPECT_EQ(size_of(DataType::kFloat64), sizeof(double));
  EXPECT_EQ(size_of(DataType::kFloat16), 2u);
  EXPECT_EQ(size_of(DataType::kBFloat16), 2u);
  EXPECT_EQ(size_of(DataType::kInt32), sizeof(int32_t));
  EXPECT_EQ(size_of(DataType::kInt64), sizeof(int64_t));
  EXPECT_EQ(size_of(DataType::kUInt8), 1u);
  EXPECT_EQ(size_of(DataType::kBool), 1u);
}

TEST(DataType, KnowsItsFloatingPointTypes) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16}) {
    EXPECT_TRUE(is_floating_point(type)) << name(type);
  }
  for (const DataType type : {DataType::kInt32, DataType::kInt64, DataType::kUInt8, DataType::kBool}) {
    EXPECT_FALSE(is_floating_point(type)) << name(type);
  }
}

TEST(ReduceOp, HasAName) {
  EXPECT_EQ(name(ReduceOp::kSum), "sum");
  EXPECT_EQ(name(ReduceOp::kProduct), "product");
  EXPECT_EQ(name(ReduceOp::kMin), "min");
  EXPECT_EQ(name(ReduceOp::kMax), "max");
  EXPECT_EQ(name(ReduceOp::kMean), "mean");
}

}  // namespace
}  // namespace lockstep
