#include "lockstep/train/data/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "lockstep/error.h"
#include "support/refusal.h"
#include "train/data/permutation.h"

namespace lockstep {
namespace {

using Indices = std::vector<size_t>;
using testing::ElementsAre;
using testing::HasSubstr;

/// What is left of an epoch.
Indices drain(DistributedSampler& sampler, size_t batch_size = 7) {
  Indices all;
  while (const auto batch = sampler.next(batch_size)) all.insert(all.end(), batch->begin(), batch->end());
  return all;
}

Indices epoch_of(DistributedSampler& sampler, size_t epoch) {
  sampler.set_epoch(epoch);
  sampler.reset();
  return drain(sampler);
}

TEST(DistributedSampler, DealsEveryIndexOnceApartFromLessThanAWorldOfThem) {
  for (const size_t size : {1, 2, 3, 4, 5, 7, 8, 16, 31, 97, 100}) {
    for (const int world : {1, 2, 3, 4, 5, 7, 8}) {
      for (const bool drop_last : {false, true}) {
        for (const bool shuffle : {false, true}) {
          if (drop_last && size < static_cast<size_t>(world)) continue;
          SCOPED_TRACE(testing::Message() << size << " over " << world << " drop_last " << drop_last);
          std::map<size_t, int> given;
          size_t total = 0;
          for (int rank = 0; rank < world; ++rank) {
            DistributedSampler sampler(
                size, {.rank = rank, .world_size = world, .shuffle = shuffle, .drop_last = drop_last});
            const auto own = epoch_of(sampler, 3);
            EXPECT_EQ(own.size(), sampler.samples_per_rank());
            EXPECT_EQ(own.size(),
                      (size + (drop_last ? 0 : static_cast<size_t>(world) - 1)) / static_cast<size_t>(world));
            for (const size_t index : own) ++given[index];
            total += own.size();
          }
          for (const auto& [index, times] : given) {
            EXPECT_LT(index, size);
            const size_t most =
                (static_cast<size_t>(world) + size - 1) / size + 1;  // how often a tiny set goes round
            EXPECT_LE(times, drop_last ? 1 : static_cast<int>(most));
          }
          if (drop_last) {
            EXPECT_GT(given.size() + static_cast<size_t>(world), size);
          } else {
            EXPECT_EQ(given.size(), size) << "an index was left out";
            EXPECT_LT(total - size, static_cast<size_t>(world)) << "too many repeats";
          }
        }
      }
    }
  }
}

TEST(DistributedSampler, TakesTurnsInOrderWithoutShuffle) {
  DistributedSampler sampler(8, {.rank = 1, .world_size = 3, .shuffle = false});
  EXPECT_THAT(epoch_of(sampler, 0), ElementsAre(1, 4, 7));
  EXPECT_THAT(epoch_of(sampler, 5), ElementsAre(1, 4, 7));
  DistributedSampler last(8, {.rank = 2, .world_size = 3, .shuffle = false});
  EXPECT_THAT(epoch_of(last, 0), ElementsAre(2, 5, 0)) << "the last is padded from the beginning";
}

TEST(DistributedSampler, HasAnotherOrderInEveryEpochAndTheSameOneAgain) {
  DistributedSampler sampler(100, {.seed = 5});
  std::set<Indices> orders;
  const std::vector<size_t> epochs = {0,   1,   2,   3,     4,     5,          6,
                                      255, 256, 257, 65535, 65536, 1ULL << 32, 1ULL << 63};
  for (const size_t epoch : epochs) orders.insert(epoch_of(sampler, epoch));
  EXPECT_EQ(orders.size(), epochs.size());
  DistributedSampler same(100, {.seed = 5});
  DistributedSampler other(100, {.seed = 6});
  EXPECT_EQ(epoch_of(sampler, 4), epoch_of(same, 4));
  EXPECT_NE(epoch_of(sampler, 4), epoch_of(other, 4));
}

TEST(DistributedSampler, RepeatsAnOrderUntilAnotherEpochIsChosen) {
  DistributedSampler sampler(20);
  const auto first = drain(sampler);
  EXPECT_EQ(sampler.next(3), DistributedSampler::Optional<Indices>());
  sampler.reset();
  EXPECT_EQ(drain(sampler), first);
}

TEST(DistributedSampler, HasTheSameOrderOnEveryPlatform) {
  EXPECT_THAT(train::permutation(10, 42), ElementsAre(0, 9, 5, 8, 6, 4, 7, 2, 1, 3));
  DistributedSampler sampler(10, {.seed = 1});
  EXPECT_THAT(epoch_of(sampler, 2), ElementsAre(9, 0, 7, 2, 8, 3, 5, 6, 1, 4));
}

TEST(DistributedSampler, NeitherReadsNorMovesTorchsGenerator) {
  torch::manual_seed(1);
  const auto expected = torch::rand({3});
  torch::manual_seed(1);
  DistributedSampler sampler(50);
  const auto order = epoch_of(sampler, 1);
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
  torch::manual_seed(2);
  DistributedSampler again(50);
  EXPECT_EQ(epoch_of(again, 1), order);
}

TEST(Permutation, MakesEveryOrderEquallyOften) {
  std::map<Indices, int> times;
  constexpr int kDraws = 24'000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) ++times[train::permutation(4, seed)];
  ASSERT_EQ(times.size(), 24U);
  double chi_squared = 0;
  for (const auto& [order, count] : times) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom: one fair shuffle in a thousand is above
}

TEST(Permutation, HandlesTheSmallest) {
  EXPECT_THAT(train::permutation(0, 1), ElementsAre());
  EXPECT_THAT(train::permutation(1, 1), ElementsAre(0));
}

TEST(DistributedSampler, ResumesInTheMiddleOfAnEpoch) {
  const DistributedSamplerOptions options{.rank = 1, .world_size = 2, .seed = 9};
  DistributedSampler whole(31, options);
  const auto all = epoch_of(whole, 2);
  for (size_t done = 0; done <= all.size(); ++done) {
    DistributedSampler sampler(31, options);
    sampler.set_epoch(2);
    sampler.resume_at(done);
    sampler.set_epoch(2);  // as a loop over epochs does
    EXPECT_EQ(sampler.position(), done);
    sampler.reset();  // as data loaders do
    const auto rest = drain(sampler);
    EXPECT_EQ(rest, Indices(all.begin() + static_cast<std::ptrdiff_t>(done), all.end())) << done;
    sampler.reset();
    EXPECT_EQ(drain(sampler), all) << "the next pass is not whole";
  }
}

TEST(DistributedSampler, ForgetsAPlaceWhenAnotherEpochIsChosen) {
  DistributedSampler fresh(10);
  const auto whole = epoch_of(fresh, 1);
  for (const bool resets : {true, false}) {  // loaders do; loops over next() do not
    for (const bool resumes : {true, false}) {
      DistributedSampler sampler(10);
      resumes ? sampler.resume_at(4) : void(sampler.next(4));
      sampler.set_epoch(1);
      EXPECT_EQ(sampler.position(), 0U);
      if (resets) sampler.reset();
      EXPECT_EQ(drain(sampler), whole);
    }
  }
}

std::stringstream saved(const DistributedSampler& sampler) {
  std::stringstream file;
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  archive.save_to(file);
  return file;
}

void load(DistributedSampler& sampler, std::stringstream& file) {
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  sampler.load(archive);
}

TEST(DistributedSampler, GoesOnFromAnArchive) {
  const DistributedSamplerOptions options{.world_size = 3, .seed = uint64_t{1} << 63 | 5};
  DistributedSampler sampler(50, options);
  sampler.set_epoch(6);
  sampler.reset();
  sampler.next(5);
  auto file = saved(sampler);
  DistributedSampler resumed(50, options);
  load(resumed, file);
  EXPECT_EQ(resumed.epoch(), 6U);
  EXPECT_EQ(resumed.position(), 5U);
  resumed.reset();
  EXPECT_EQ(drain(resumed), drain(sampler));
}

TEST(DistributedSampler, RefusesAnArchiveOfAnotherOrderByNameAndValues) {
  const DistributedSampler sampler(50, {.world_size = 3, .seed = 4});
  const auto load_into = [&](size_t size, const DistributedSamplerOptions& options) {
    auto file = saved(sampler);
    DistributedSampler other(size, options);
    return test::refusal_of([&] { load(other, file); });
  };
  EXPECT_THAT(load_into(49, {.world_size = 3, .seed = 4}), HasSubstr("has size 50, this sampler 49"));
  EXPECT_THAT(load_into(50, {.world_size = 2, .seed = 4}), HasSubstr("has world_size 3, this sampler 2"));
  EXPECT_THAT(load_into(50, {.world_size = 3, .seed = 8}), HasSubstr("has seed 4, this sampler 8"));
  EXPECT_THAT(load_into(50, {.world_size = 3, .shuffle = false, .seed = 4}), HasSubstr("shuffle 1"));
  EXPECT_THAT(load_into(50, {.world_size = 3, .drop_last = true, .seed = 4}), HasSubstr("drop_last 0"));
  EXPECT_EQ(load_into(50, {.rank = 2, .world_size = 3, .seed = 4}), "accepted");
}

TEST(DistributedSampler, RefusesBadInputByNameAndValue) {
  const auto make = [](size_t size, const DistributedSamplerOptions& options) {
    return test::refusal_of([&] { DistributedSampler sampler(size, options); });
  };
  EXPECT_THAT(make(10, {.rank = 2, .world_size = 2}), HasSubstr("rank is 2 in a world of 2"));
  EXPECT_THAT(make(10, {.rank = -1, .world_size = 2}), HasSubstr("rank is -1"));
  EXPECT_THAT(make(10, {.world_size = 0}), HasSubstr("world_size is 0"));
  EXPECT_THAT(make(0, {}), HasSubstr("size 0"));
  EXPECT_THAT(make(3, {.world_size = 4, .drop_last = true}), HasSubstr("size 3 leaves nothing to 4 ranks"));
  DistributedSampler sampler(10, {.world_size = 2});
  EXPECT_THAT(test::refusal_of([&] { sampler.resume_at(6); }), HasSubstr("behind 6 samples"));
  EXPECT_THAT(test::refusal_of([&] { sampler.next(0); }), HasSubstr("batch_size is 0"));
  EXPECT_THAT(test::refusal_of([&] { sampler.reset(0); }), HasSubstr("size 0"));
}

TEST(DistributedSampler, TakesANewSizeByReset) {
  DistributedSampler sampler(10, {.world_size = 2});
  sampler.reset(20);
  EXPECT_EQ(sampler.samples_per_rank(), 10U);
  EXPECT_EQ(drain(sampler).size(), 10U);
}

/// Sample i is the number i.
struct Numbers : torch::data::datasets::Dataset<Numbers, int64_t> {
  int64_t get(size_t index) override { return static_cast<int64_t>(index); }
  torch::optional<size_t> size() const override { return 30; }
};

TEST(DistributedSampler, ReachesTheDataLoaderThatTookIt) {
  DistributedSampler sampler(30, {.rank = 1, .world_size = 3});
  for (const size_t workers : {0, 2}) {
    const auto loader = torch::data::make_data_loader(
        Numbers(), sampler, torch::data::DataLoaderOptions().batch_size(4).workers(workers));
    for (size_t epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      if (epoch == 2) sampler.resume_at(4);
      Indices seen;
      for (const auto& batch : *loader) seen.insert(seen.end(), batch.begin(), batch.end());
      DistributedSampler apart(30, {.rank = 1, .world_size = 3});
      auto expected = epoch_of(apart, epoch);
      if (epoch == 2) expected.erase(expected.begin(), expected.begin() + 4);
      EXPECT_EQ(seen, expected) << "epoch " << epoch;
    }
  }
}

}  // namespace
}  // namespace lockstep
