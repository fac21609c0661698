// What the course calls by name: steps, hooks, buckets, analyses.
#include "lockstep/lockstep.h"
#include "parallel/ddp_models.h"
#include "parallel/ddp_support.h"

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kCourseSteps = 4;

torch::Tensor inputs(int step) {
  return random(static_cast<uint64_t>(step), {12, kWidth});
}
torch::Tensor targets(int step) {
  return random(1000 + static_cast<uint64_t>(step), {12, kWidth});
}

/// The weights of one process that trains on whole batches.
std::vector<torch::Tensor> weights_of_one_process() {
  FullMLP model(kWidth, 3, 7);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < kCourseSteps; ++step) {
    optimizer.zero_grad();
    model->forward(inputs(step), targets(step)).backward();
    optimizer.step();
  }
  return model->parameters();
}

class Course : public testing::TestWithParam<int> {
 protected:
  static int world() { return GetParam(); }
  /// Trains by `step`; all ranks must end with the weights of one process.
  static void expect_one_process(
      const std::function<void(FullMLP&, DataParallelComms&, const torch::Tensor&, const torch::Tensor&,
                               torch::optim::SGD&)>& step_of) {
    const auto expected = weights_of_one_process();
    on_ranks(world(), [&](Communicator& comm) {
      DataParallelComms comms(comm);
      FullMLP model(kWidth, 3, 7);
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      for (int step = 0; step < kCourseSteps; ++step) {
        step_of(model, comms, shard(inputs(step), comm.rank(), world()),
                shard(targets(step), comm.rank(), world()), optimizer);
      }
      expect_close(model->parameters(), expected, "weights");
      EXPECT_TRUE(are_equal_on_all_ranks(comm, model->parameters()));
    });
  }
};

TEST_P(Course, TheNaiveStepTrainsAsOneProcessDoes) {
  expect_one_process(
      [](FullMLP& model, DataParallelComms& comms, const auto& input, const auto& target, auto& optimizer) {
        naive_data_parallel_step(model, comms, input, target, optimizer);
      });
}

TEST_P(Course, TheDdpStepTrainsAsOneProcessDoes) {
  const auto expected = weights_of_one_process();
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 3, 7);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < kCourseSteps; ++step) {
      ddp_step(ddp, shard(inputs(step), comm.rank(), world()), shard(targets(step), comm.rank(), world()),
               optimizer);
    }
    expect_close(model->parameters(), expected, "weights");
  });
}

TEST_P(Course, RegisteredHooksTrainAsOneProcessDoesUntilTheyAreGone) {
  const auto expected = weights_of_one_process();
  on_ranks(world(), [&](Communicator& comm) {
    DataParallelComms comms(comm);
    FullMLP model(kWidth, 3, 7);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    {
      const auto hooks = register_ddp_hooks(model, comms);
      EXPECT_EQ(hooks.buckets().size(), 6U);
      for (int step = 0; step < kCourseSteps; ++step) {
        optimizer.zero_grad();
        model->forward(shard(inputs(step), comm.rank(), world()), shard(targets(step), comm.rank(), world()))
            .backward();
        optimizer.step();
      }
      expect_close(model->parameters(), expected, "weights");
    }
    if (comm.rank() == 0) model->forward(inputs(0)).mean().backward();  // nobody waits for it
  });
}

TEST_P(Course, BucketedHooksFillBucketsFromTheLastLayerOn) {
  on_ranks(world(), [&](Communicator& comm) {
    DataParallelComms comms(comm);
    FullMLP model(64, 4, 7);  // 16.25 KiB a layer
    const BucketedDDPHooks hooks(model, comms, 40.0 / 1024);
    const auto input = random(static_cast<uint64_t>(comm.rank()), {2, 64});
    for (int step = 0; step < 2; ++step) model->forward(input).mean().backward();
    const auto buckets = hooks.buckets();
    ASSERT_EQ(buckets.size(), 2U);
    EXPECT_EQ(buckets[0].bytes + buckets[1].bytes, 4 * (64 * 64 + 64) * 4);
    EXPECT_THAT(buckets[0].names.front(), HasSubstr("layers.3."));
    EXPECT_THAT(buckets[1].names.back(), HasSubstr("layers.0."));
    EXPECT_TRUE(are_equal_on_all_ranks(comm, buckets[0].gradients()));
    EXPECT_EQ(hooks.logging_data().steps, 2);
  });
}

TEST_P(Course, HooksAreUsableAgainAfterABackwardThatThrew) {
  on_ranks(world(), [&](Communicator& comm) {
    DataParallelComms comms(comm);
    const auto act = std::make_shared<AtBackward::Act>([] {});
    auto model = filled(TwoHeads(), 3);
    const auto loss_of = [&] {
      const auto input = random(static_cast<uint64_t>(comm.rank()), {2, kWidth});
      return model->right->forward(model->left->forward(AtBackward::apply(model->body->forward(input), act)))
          .mean();
    };
    struct NoForwardImpl : torch::nn::Module {
      torch::Tensor forward(const torch::Tensor& input) { return input; }
    };
    const auto holder = std::make_shared<NoForwardImpl>();
    holder->register_module("model", model.ptr());
    const BucketedDDPHooks hooks(holder, comms, 1e-6);
    loss_of().backward();
    const bool fails = comm.rank() == 0;
    *act = [&] {
      if (fails) throw std::runtime_error("a bad sample");
    };
    EXPECT_NE(thrown_by([&] { loss_of().backward(); }), "");
    *act = [] {};
    model->zero_grad(/*set_to_none=*/true);
    loss_of().backward();
    EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Course, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST(Manual, TwoCopiesInOneProcessTrainAsOneModelDoes) {
  const auto expected = weights_of_one_process();
  FullMLP first(kWidth, 3, 7);
  FullMLP second(kWidth, 3, 7);
  torch::optim::SGD first_optimizer(first->parameters(), 0.1);
  torch::optim::SGD second_optimizer(second->parameters(), 0.1);
  for (int step = 0; step < kCourseSteps; ++step) {
    manual_data_parallel_step(first, second, inputs(step), targets(step), first_optimizer, second_optimizer);
  }
  expect_close(first->parameters(), expected, "first");
  expect_close(second->parameters(), first->parameters(), "second", 0);
}

TEST(HookTracker, SeesGradientsComeFromTheLastLayerToTheFirst) {
  FullMLP model(kWidth, 3, 7);
  HookTracker tracker(model);
  model->forward(inputs(0)).mean().backward();
  std::vector<std::string> layers;
  for (const auto& call : tracker.calls()) {
    const std::string layer = call.name.substr(0, call.name.rfind('.'));
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }
  EXPECT_THAT(layers, ElementsAre("layers.2", "layers.1", "layers.0"));
  EXPECT_TRUE(std::is_sorted(tracker.calls().begin(), tracker.calls().end(),
                             [](const auto& a, const auto& b) { return a.at_us < b.at_us; }));
  tracker.begin();
  EXPECT_TRUE(tracker.calls().empty());
}

TEST(PredictStep, SendsEachBucketWhenItIsReadyAndTheOneBeforeIsDone) {
  // 1 MB at 1 Gbit/s is 8 ms; between two ranks an all-reduce sends twice half of it.
  const DdpLoggingData measured = {.rebuilt_bucket_bytes = {1'000'000, 1'000'000, 500'000},
                                   .buckets = {{.ready_us = 1000}, {.ready_us = 2000}, {.ready_us = 30'000}},
                                   .backward_us = 31'000};
  const auto step = predict_step(measured, {.gbit_per_second = 1, .latency_us = 0, .world_size = 2});
  ASSERT_EQ(step.buckets.size(), 3U);
  EXPECT_NEAR(step.buckets[0].done_us, 9000, 1);
  EXPECT_NEAR(step.buckets[1].launch_us, 9000, 1);
  EXPECT_NEAR(step.buckets[1].done_us, 17'000, 1);
  EXPECT_NEAR(step.buckets[2].launch_us, 30'000, 1);
  EXPECT_NEAR(step.buckets[2].done_us, 34'000, 1);
  EXPECT_NEAR(step.exposed_us, 3000, 1);
  EXPECT_NEAR(step.communication_us, 20'000, 1);
  EXPECT_NEAR(step.exposed_manual_us, 20'000, 1);
}

TEST(Bottleneck, IsWhatTakesLongest) {
  EXPECT_EQ(
      find_bottleneck({.forward_ms = 1, .backward_ms = 2, .communication_ms = 4, .optimizer_ms = 1}).name,
      "communication");
  EXPECT_EQ(
      find_bottleneck({.forward_ms = 1, .backward_ms = 2, .communication_ms = 1, .optimizer_ms = 5}).name,
      "memory");
  EXPECT_EQ(
      find_bottleneck({.forward_ms = 3, .backward_ms = 6, .communication_ms = 1, .optimizer_ms = 1}).name,
      "computation");
}

// The usage examples of the course's text, in its own words and order of arguments.
TEST(Usage, AnalyzePerformance) {
  on_ranks(2, [](Communicator& comm) {
    DataParallelComms comms(comm);
    FullMLP model(16, 4);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const auto input = random(1, {8, 16});
    const auto target = random(2, {8, 16});
    const int steps = 5;

    DDPPerformanceAnalyzer analyzer(comms, "cpu");
    EXPECT_THAT(thrown_by([&] { analyzer.analyze_communication_overhead(); }),
                HasSubstr("no step was timed"));
    for (int step = 0; step < steps; ++step) {
      const auto timing = analyzer.time_step(model, input, target, optimizer);
      EXPECT_GT(timing.total_ms(), 0);
    }
    const auto overhead = analyzer.analyze_communication_overhead();
    EXPECT_EQ(overhead.steps, 3);
    EXPECT_GT(overhead.fraction, 0);
    EXPECT_LT(overhead.fraction, 1);
    EXPECT_GT(overhead.break_even_batch, 0);
    EXPECT_THAT(to_text(overhead),
                testing::AllOf(HasSubstr("communication"), HasSubstr("is it worth it here?")));
    EXPECT_TRUE(are_equal_on_all_ranks(comm, {torch::tensor(overhead.estimated_speedup)}));
    EXPECT_THAT(thrown_by([&] { DDPPerformanceAnalyzer(comms, "cuda"); }), HasSubstr("device 'cuda'"));
  });
}

TEST(Usage, UseBucketing) {
  on_ranks(2, [](Communicator& comm) {
    DataParallelComms comms(comm);
    FullMLP model(16, 4, 1);

    BucketedDDPHooks bucketed_hooks(model, comms, /*bucket_size_mb=*/25.0);
    model->forward(random(static_cast<uint64_t>(comm.rank()), {8, 16})).mean().backward();
    EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));

    const auto results = compare_bucketed_vs_unbucketed(model, comms, {.caps_mib = {0, 25}, .rounds = 2});
    ASSERT_EQ(results.size(), 2U);
    EXPECT_EQ(results[0].messages, 8);
    EXPECT_EQ(results[1].messages, 1);
    EXPECT_EQ(results[0].bytes, results[1].bytes);
    EXPECT_THAT(to_text(results), HasSubstr("no buckets"));
  });
}

TEST(Usage, DemonstrateHookOrder) {
  on_ranks(2, [](Communicator& comm) {
    DataParallelComms comms(comm);
    FullMLP model(16, 4);

    const std::string order = demonstrate_hook_order(model, comms);
    EXPECT_LT(order.find("layers.3.weight"), order.find("layers.0.weight"));
    EXPECT_THAT(demonstrate_overlap(model, comms), HasSubstr("simulated link"));
    const auto timing = compare_hook_vs_manual_timing(model, comms, 2);
    EXPECT_GT(timing.hooks_ms, 0);
    EXPECT_GT(timing.manual_ms, 0);
  });
}

TEST(Usage, AnalyzeScalingEfficiency) {
  on_ranks(3, [](Communicator& comm) {
    std::vector<int> worlds;
    const auto rows = analyze_scaling_efficiency(comm, 4, [&](DataParallelComms& comms) {
      worlds.push_back(comms.world_size());
      return 1.0 + 0.5 * comms.world_size();  // a step that takes longer with every rank
    });
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[2].world_size, 3);
    EXPECT_NEAR(rows[1].step_ms, 2, 1e-9);
    EXPECT_NEAR(rows[1].samples_per_second, 4000, 1e-6);
    EXPECT_NEAR(rows[1].efficiency, 0.75, 1e-9);
    EXPECT_EQ(worlds.size(), comm.rank() == 0 ? 3U : comm.rank() == 1 ? 2U : 1U);
    EXPECT_THAT(to_text(rows), HasSubstr("75%"));
  });
}

}  // namespace
}  // namespace lockstep::test
