#include "train/data/teacher_task.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(TeacherTask, GivesTheSameSamplesForTheSameSeedAndStep) {
  const Batch one = TeacherTask(12, 3).batch(5, 20);
  const Batch same = TeacherTask(12, 3).batch(5, 20);
  EXPECT_TRUE(one.inputs.equal(same.inputs));
  EXPECT_TRUE(one.targets.equal(same.targets));
  EXPECT_EQ(one.inputs.sizes(), at::IntArrayRef({20, 12}));
  EXPECT_EQ(one.targets.sizes(), at::IntArrayRef({20, 12}));
}

TEST(TeacherTask, GivesNewSamplesAtEveryStepAndForValidation) {
  const TeacherTask task(12, 3);
  const auto first = task.batch(0, 20).inputs;
  EXPECT_FALSE(first.equal(task.batch(1, 20).inputs));
  EXPECT_FALSE(first.equal(task.validation(20).inputs));
  EXPECT_FALSE(first.equal(TeacherTask(12, 4).batch(0, 20).inputs));
}

TEST(TeacherTask, AnsweringTheMeanHasALossOfOne) {
  for (const int64_t dim : {1, 5, 128}) {
    const auto targets = TeacherTask(dim, 0).validation(20000).targets;
    EXPECT_NEAR(targets.square().mean().item<double>(), 1, 0.1) << dim;
    EXPECT_NEAR(targets.mean().item<double>(), 0, 0.1) << dim;
  }
}

}  // namespace
}  // namespace lockstep::train
