// How gradients are put into buckets, and what is logged of it.
#include <random>

#include "lockstep/trace/session.h"
#include "lockstep/train/models/full_mlp.h"
#include "parallel/ddp/buckets.h"
#include "parallel/ddp_support.h"

namespace lockstep::test {
namespace {

using ddp::assign_buckets;
using testing::ElementsAre;

TEST(Buckets, AreClosedWhenTheyHaveTheCapAndTheFirstEarlier) {
  const std::vector<ddp::GradientSize> sizes(6, {.bytes = 10, .type = 0});
  EXPECT_THAT(assign_buckets({5, 4, 3, 2, 1, 0}, sizes, 10, 25),
              ElementsAre(ElementsAre(5), ElementsAre(4, 3, 2), ElementsAre(1, 0)));
  EXPECT_THAT(assign_buckets({0, 1, 2, 3, 4, 5}, sizes, 1000, 20),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(assign_buckets({}, {}, 10, 20), testing::IsEmpty());
}

TEST(Buckets, HoldOneTypeAndComeInTheOrderInWhichTheyAreComplete) {
  const std::vector<ddp::GradientSize> sizes = {{10, 0}, {10, 1}, {10, 0}, {10, 1}, {10, 0}};
  EXPECT_THAT(assign_buckets({0, 1, 2, 3, 4}, sizes, 20, 20),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
  EXPECT_THAT(assign_buckets({1, 0, 2, 4, 3}, sizes, 100, 100),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
}

TEST(Buckets, HoldEveryGradientOnceWhateverTheOrder) {
  std::mt19937 dice(1);
  for (int trial = 0; trial < 500; ++trial) {
    const size_t count = dice() % 20;
    std::vector<ddp::GradientSize> sizes;
    std::vector<size_t> order;
    for (size_t i = 0; i < count; ++i) {
      sizes.push_back({.bytes = static_cast<int64_t>(dice() % 50), .type = static_cast<int>(dice() % 3)});
      order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), dice);
    const auto cap = static_cast<int64_t>(1 + dice() % 100);
    std::vector<size_t> all;
    for (const auto& bucket : assign_buckets(order, sizes, 1 + static_cast<int64_t>(dice() % 30), cap)) {
      ASSERT_FALSE(bucket.empty());
      int64_t bytes = 0;
      for (const size_t index : bucket) {
        EXPECT_EQ(sizes[index].type, sizes[bucket.front()].type);
        bytes += sizes[index].bytes;
      }
      EXPECT_LT(bytes - sizes[bucket.back()].bytes, cap) << "closed too late";
      all.insert(all.end(), bucket.begin(), bucket.end());
    }
    std::sort(all.begin(), all.end());
    std::sort(order.begin(), order.end());
    EXPECT_EQ(all, order);
  }
}

TEST(Logging, TellsBucketsTimesAndThatTheyWereRebuiltOnce) {
  for (const bool overlap : {true, false}) {
    on_ranks(2, [&](Communicator& comm) {
      FullMLP model(64, 4, 1);
      DistributedDataParallel ddp(
          model, comm, {.bucket_cap_mib = 0.03, .first_bucket_cap_mib = 0.001, .overlap = overlap});
      auto log = ddp.logging_data();
      EXPECT_EQ(log.engine, "threads");
      EXPECT_EQ(log.world_size, 2);
      EXPECT_EQ(log.parameters, 8);
      EXPECT_EQ(log.gradient_bytes, 4 * (64 * 64 + 64) * 4);
      EXPECT_THAT(log.rebuilt_bucket_bytes, testing::IsEmpty());
      // Reverse order of registration: the last bias fills no bucket, with its weight it does.
      EXPECT_THAT(log.bucket_bytes, ElementsAre(64 * 65 * 4, 2 * 64 * 65 * 4, 64 * 65 * 4));
      std::vector<int64_t> rebuilt;
      for (int step = 0; step < 4; ++step) {
        ddp.forward(random(static_cast<uint64_t>(comm.rank()), {2, 64})).mean().backward();
        log = ddp.logging_data();
        EXPECT_EQ(log.steps, step + 1);
        if (step == 0) rebuilt = log.rebuilt_bucket_bytes;
        EXPECT_EQ(log.rebuilt_bucket_bytes, rebuilt) << "rebuilt more than once";
        EXPECT_THAT(rebuilt, testing::Not(testing::IsEmpty()));
        double before = 0;
        for (const auto& bucket : log.buckets) {
          EXPECT_LE(bucket.ready_us, bucket.launch_us);
          EXPECT_LE(bucket.launch_us, bucket.done_us);
          EXPECT_LE(before, bucket.done_us) << "out of order";
          before = bucket.done_us;
        }
        EXPECT_EQ(log.buckets.size(), step == 0 ? log.bucket_bytes.size() : rebuilt.size());
        EXPECT_GT(log.communication_us, 0);
        EXPECT_EQ(log.overlaps, overlap);
        if (!overlap) {
          EXPECT_GE(log.exposed_us * 1.0001, log.communication_us);
        }
      }
    });
  }
}

TEST(Logging, ATraceHasEveryBackwardAndTheBucketsOneAfterTheOther) {
  for (const bool overlaps : {true, false}) {
    constexpr int kSteps = 3;
    size_t buckets = 0;
    trace::start();
    on_ranks(2, [&](Communicator& comm) {
      FullMLP model(16, 3, 5);
      DdpOptions options = many_buckets();
      options.overlap = overlaps;
      DistributedDataParallel ddp(model, comm, options);
      for (int step = 0; step < kSteps; ++step) ddp.forward(random(1, {4, 16})).sum().backward();
      if (comm.rank() == 0) buckets = ddp.logging_data().buckets.size();
    });
    const auto spans = trace::stop().spans;
    ASSERT_GT(buckets, 2U);
    for (int rank = 0; rank < 2; ++rank) {
      for (int step = 1; step <= kSteps; ++step) {
        int64_t free_ns = 0;
        size_t next = 0;
        int backwards = 0;
        for (const auto& span : spans) {
          if (span.rank != rank || span.call != step) continue;
          backwards += span.name == "backward" && span.stream == trace::Stream::kCompute ? 1 : 0;
          if (!span.name.starts_with("bucket ")) continue;
          EXPECT_EQ(span.name, "bucket " + std::to_string(next++));
          EXPECT_EQ(span.stream, overlaps ? trace::Stream::kProgress : trace::Stream::kCommunication);
          EXPECT_GT(span.bytes, 0);
          EXPECT_GE(span.begin_ns, free_ns);
          free_ns = span.end_ns;
        }
        EXPECT_EQ(backwards, 1);
        EXPECT_EQ(next, buckets);
      }
    }
  }
}

TEST(Buffers, AreRankZerosBeforeEachSynchronisedForwardAlsoWhenReplaced) {
  struct CountingImpl : torch::nn::Module {
    CountingImpl() {
      weight = register_parameter("weight", torch::ones({2}));
      seen = register_buffer("seen", torch::zeros({2}, torch::kLong));
      scale = register_buffer("scale", torch::ones({3}));
    }
    torch::Tensor forward(const torch::Tensor& input) { return input * weight * scale.sum(); }
    torch::Tensor weight, seen, scale;
  };
  on_ranks(3, [](Communicator& comm) {
    const auto model = std::make_shared<CountingImpl>();
    model->seen.fill_(comm.rank());
    DistributedDataParallel ddp(model, comm);
    EXPECT_TRUE(are_equal_on_all_ranks(comm, model->buffers()));
    const auto input = random(static_cast<uint64_t>(comm.rank()), {4, 2});
    model->seen.fill_(10 + comm.rank());
    {
      const auto guard = ddp.no_sync();
      ddp.forward(input).mean().backward();
      EXPECT_EQ(model->seen[0].item<int64_t>(), 10 + comm.rank()) << "not within no_sync";
    }
    ddp.forward(input).mean().backward();
    EXPECT_EQ(model->seen[0].item<int64_t>(), 10);
    if (comm.rank() == 0) {  // another tensor in its place
      model->named_buffers();
      model->seen.set_data(torch::full({2}, 77, torch::kLong));
    }
    ddp.forward(input).mean().backward();
    EXPECT_EQ(model->seen[0].item<int64_t>(), 77);
  });
}

TEST(Replicas, AreRankZerosAfterConstructionWhateverTheyWere) {
  on_ranks(4, [](Communicator& comm) {
    FullMLP model(5, 2, 100 + static_cast<uint64_t>(comm.rank()));
    const FullMLP of_rank_0(5, 2, 100);
    const auto before = model->parameters()[0]._version();
    const DistributedDataParallel ddp(model, comm);
    expect_close(model->parameters(), of_rank_0->parameters(), "weights", 0);
    EXPECT_GT(model->parameters()[0]._version(), before) << "autograd must know";
  });
}

}  // namespace
}  // namespace lockstep::test
