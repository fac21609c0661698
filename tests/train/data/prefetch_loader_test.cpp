#include "lockstep/train/data/prefetch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <future>
#include <memory>

namespace lockstep {
namespace {

using testing::ElementsAre;

/// 0, 1, ..., count - 1.
auto numbers(int count) {
  return [count, i = 0]() mutable -> std::optional<int> {
    if (i == count) return std::nullopt;
    return i++;
  };
}

TEST(PrefetchLoader, KeepsTheOrderForEveryDepth) {
  for (const size_t depth : {1, 2, 7, 1000}) {
    PrefetchLoader loader(numbers(100), depth);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(loader.next(), std::optional<int>(i));
    EXPECT_EQ(loader.next(), std::nullopt);
    EXPECT_EQ(loader.next(), std::nullopt) << "the end did not stay";
  }
}

TEST(PrefetchLoader, CanBeLoopedOver) {
  std::vector<int> seen;
  for (const int number : PrefetchLoader(numbers(4))) seen.push_back(number);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3));
  for (const int number : PrefetchLoader(numbers(0))) FAIL() << number << " came from an empty source";
}

TEST(PrefetchLoader, ThrowsInThePlaceOfTheBatchThatIsMissing) {
  PrefetchLoader loader(
      [i = 0]() mutable -> std::optional<int> {
        if (i == 3) throw std::runtime_error("no fourth");
        return i++;
      },
      10);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next(), std::optional<int>(i));
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_EQ(loader.next(), std::nullopt);
}

TEST(PrefetchLoader, RunsAheadByItsDepthAndNoFurther) {
  std::atomic<int> calls = 0;
  std::promise<void> third;
  PrefetchLoader loader(
      [&]() -> std::optional<int> {
        const int call = ++calls;
        if (call == 3) third.set_value();
        return call;
      },
      3);
  third.get_future().wait();  // nobody consumed anything
  EXPECT_EQ(loader.next(), std::optional<int>(1));
  EXPECT_LE(calls, 4);
}

TEST(PrefetchLoader, StopsWhenAbandonedHalfWay) {
  const auto alive = std::make_shared<int>(0);
  {
    PrefetchLoader loader([alive]() { return std::optional(alive); }, 4);  // without end
    loader.next();
    loader.next();
  }
  EXPECT_EQ(alive.use_count(), 1) << "the source or a batch was left behind";
}

TEST(PrefetchLoader, IsOverAfterStop) {
  PrefetchLoader loader(numbers(100));
  EXPECT_EQ(loader.next(), std::optional<int>(0));
  loader.stop();
  EXPECT_EQ(loader.next(), std::nullopt);
  loader.stop();
}

TEST(PrefetchLoader, DropsAFailureThatNobodyWaitedFor) {
  EXPECT_NO_THROW(PrefetchLoader([]() -> std::optional<int> { throw std::runtime_error("unseen"); }));
}

TEST(PrefetchLoader, TakesBatchesAndSourcesThatCannotBeCopied) {
  PrefetchLoader loader([last = std::make_unique<int>(2)]() -> std::optional<std::unique_ptr<int>> {
    if (*last == 0) return std::nullopt;
    return std::make_unique<int>((*last)--);
  });
  EXPECT_EQ(**loader.next(), 2);
  EXPECT_EQ(**loader.next(), 1);
  EXPECT_EQ(loader.next(), std::nullopt);
}

TEST(PrefetchLoader, RefusesADepthOfZero) {
  EXPECT_THROW(PrefetchLoader(numbers(1), 0), UsageError);
}

struct Tens : torch::data::datasets::Dataset<Tens, int64_t> {
  int64_t get(size_t index) override { return static_cast<int64_t>(index) * 10; }
  torch::optional<size_t> size() const override { return 5; }
};

TEST(PrefetchLoader, PassesOverTorchsDataLoadersAgainAndAgain) {
  const auto torch_loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(Tens(), 2);
  for (int pass = 0; pass < 2; ++pass) {
    PrefetchLoader loader(batches_of(*torch_loader));
    std::vector<std::vector<int64_t>> seen;
    for (const auto& batch : loader) seen.push_back(batch);
    EXPECT_THAT(seen, ElementsAre(ElementsAre(0, 10), ElementsAre(20, 30), ElementsAre(40)));
  }
}

}  // namespace
}  // namespace lockstep
