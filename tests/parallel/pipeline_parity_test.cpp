// What a pipeline computes is what one process computes on the whole model, whatever the schedule.
#include "parallel/pipeline_models.h"
#include "parallel/pipeline_support.h"

namespace lockstep::test {
namespace {

struct Way {
  const char* schedule;
  int ranks;
  int chunks;
};
class PipelineParity : public testing::TestWithParam<Way> {
 protected:
  static PipelineOptions options(int microbatches) {
    return {.schedule = GetParam().schedule, .microbatches = microbatches};
  }
  static int ranks() { return GetParam().ranks; }
  static std::vector<AnyModel> make_chunks(const Communicator& comm) {
    return chunks_of(mlp(kDim, kDepth), comm, GetParam().chunks);
  }

  /// Loss and gradients of the model in one process, against those of a pipeline's stages.
  static void expect_gradients(const std::vector<AnyModel>& chunks, const torch::nn::Sequential& alone,
                               const std::string& what) {
    const auto expected = alone->named_parameters();
    for (const auto& [name, parameter] : parameters_of(chunks)) {
      const torch::Tensor& gradient = expected[name].grad();
      ASSERT_TRUE(parameter.grad().defined()) << what << ", " << name;
      EXPECT_TRUE(torch::allclose(parameter.grad(), gradient, 1e-4, 1e-6)) << what << ", " << name;
    }
  }
};

TEST_P(PipelineParity, LossAndGradientsAreThoseOfOneProcess) {
  for (const int microbatches : {1, 2, 3, 5, 8}) {
    const auto x = random(1, {13, kDim}), y = random(2, {13, kDim});
    auto alone = mlp(kDim, kDepth);
    const auto expected = mean_squared_error(alone->forward(x), y);
    expected.backward();
    const std::string what = "micro-batches " + std::to_string(microbatches);
    on_ranks(ranks(), [&](Communicator& comm) {
      const auto chunks = make_chunks(comm);
      Pipeline pipeline(chunks, comm, mean_squared_error, options(microbatches));
      for (int step = 0; step < 3; ++step) {  // the first finds out the shapes
        for (const auto& chunk : chunks) chunk->zero_grad();
        const auto loss = pipeline.step(x, y);
        const bool is_last = comm.rank() + 1 == comm.world_size();
        ASSERT_EQ(loss.defined(), is_last);
        if (is_last) {
          EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5) << what;
        }
        expect_gradients(chunks, alone, what);
      }
    });
  }
}

TEST_P(PipelineParity, BatchesOfOtherSizesMayFollow) {
  on_ranks(ranks(), [&](Communicator& comm) {
    const auto chunks = make_chunks(comm);
    Pipeline pipeline(chunks, comm, mean_squared_error, options(3));
    for (const int64_t samples : {6, 7, 3, 6, 7, 11}) {
      const auto x = random(3, {samples, kDim}), y = random(4, {samples, kDim});
      auto alone = mlp(kDim, kDepth);
      mean_squared_error(alone->forward(x), y).backward();
      for (const auto& chunk : chunks) chunk->zero_grad();
      pipeline.step(x, y);
      expect_gradients(chunks, alone, std::to_string(samples) + " samples");
    }
  });
}

TEST_P(PipelineParity, WeightsAreThoseOfOneProcessAfterSomeStepsOfAdam) {
  auto alone = mlp(kDim, kDepth);
  torch::optim::Adam optimizer(alone->parameters(), torch::optim::AdamOptions(0.01));
  const auto batch_of = [](int step) { return random(10 + static_cast<uint64_t>(step), {8, kDim}); };
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    mean_squared_error(alone->forward(batch_of(step)), batch_of(step + 50)).backward();
    optimizer.step();
  }
  on_ranks(ranks(), [&](Communicator& comm) {
    const auto chunks = make_chunks(comm);
    std::vector<torch::Tensor> own;
    for (const auto& [name, parameter] : parameters_of(chunks)) own.push_back(parameter);
    Pipeline pipeline(chunks, comm, mean_squared_error, options(4));
    torch::optim::Adam stepper(own, torch::optim::AdamOptions(0.01));
    for (int step = 0; step < 4; ++step) {
      stepper.zero_grad();
      pipeline.step(batch_of(step), batch_of(step + 50));
      stepper.step();
    }
    const auto expected = alone->named_parameters();
    for (const auto& [name, parameter] : parameters_of(chunks))
      EXPECT_TRUE(torch::allclose(parameter, expected[name], 1e-4, 1e-5)) << name;
  });
}

TEST_P(PipelineParity, SumsAndOuterAccumulationAreExact) {
  const auto x = random(1, {13, kDim}), y = random(2, {13, kDim});
  const auto sum = [](const torch::Tensor& output, const torch::Tensor& target) {
    return (output - target).square().sum();
  };
  auto alone = mlp(kDim, kDepth);
  (sum(alone->forward(x), y) / 2 + sum(alone->forward(y), x) / 2).backward();
  on_ranks(ranks(), [&](Communicator& comm) {
    const auto chunks = make_chunks(comm);
    PipelineOptions summing = options(4);
    summing.reduction = LossReduction::kSum;
    Pipeline pipeline(chunks, comm, sum, summing);
    pipeline.step(x, y, 0.5);
    pipeline.step(y, x, 0.5);
    expect_gradients(chunks, alone, "sum");
  });
}

TEST_P(PipelineParity, RecomputationChangesNothingButTheMemory) {
  const auto x = random(1, {13, kDim}), y = random(2, {13, kDim});
  auto alone = mlp(kDim, kDepth);
  mean_squared_error(alone->forward(x), y).backward();
  on_ranks(ranks(), [&](Communicator& comm) {
    const auto chunks = make_chunks(comm);
    PipelineOptions recomputing = options(5);
    recomputing.recompute = true;
    Pipeline pipeline(chunks, comm, mean_squared_error, recomputing);
    for (int step = 0; step < 2; ++step) {
      for (const auto& chunk : chunks) chunk->zero_grad();
      pipeline.step(x, y);
      expect_gradients(chunks, alone, "recomputed");
    }
  });
}

TEST_P(PipelineParity, AnEvaluationHasTheLossAndNoGradients) {
  const auto x = random(1, {13, kDim}), y = random(2, {13, kDim});
  const double expected = mean_squared_error(mlp(kDim, kDepth)->forward(x), y).item<double>();
  on_ranks(ranks(), [&](Communicator& comm) {
    const auto chunks = make_chunks(comm);
    Pipeline pipeline(chunks, comm, mean_squared_error, options(4));
    for (int time = 0; time < 2; ++time) {
      const auto loss = pipeline.evaluate(x, y);
      if (loss.defined()) {
        EXPECT_NEAR(loss.item<double>(), expected, 1e-5);
        EXPECT_FALSE(loss.requires_grad());
      }
      pipeline.step(x, y);
    }
    for (const auto& chunk : chunks) chunk->zero_grad(/*set_to_none=*/true);
    pipeline.evaluate(x, y);
    for (const auto& [name, parameter] : parameters_of(chunks))
      EXPECT_FALSE(parameter.grad().defined()) << name;
  });
}

TEST_P(PipelineParity, DelaysNeverChangeABit) {
  const auto x = random(1, {8, kDim}), y = random(2, {8, kDim});
  const auto gradients_with = [&](const RanksOptions& ranks_options) {
    std::vector<std::map<std::string, torch::Tensor>> all(static_cast<size_t>(ranks()));
    const auto thrown = run_ranks(
        ranks(),
        [&](Communicator& comm) {
          const auto chunks = make_chunks(comm);
          Pipeline pipeline(chunks, comm, mean_squared_error, options(4));
          for (int step = 0; step < 3; ++step) pipeline.step(x, y);
          for (const auto& [name, parameter] : parameters_of(chunks))
            all[static_cast<size_t>(comm.rank())][name] = parameter.grad();
        },
        ranks_options);
    for (const auto& text : thrown) EXPECT_EQ(text, "");
    return all;
  };
  const auto expected = gradients_with({});
  RanksOptions delayed;
  delayed.threads.delays = 7;
  const auto found = gradients_with(delayed);
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    for (const auto& [name, gradient] : expected[rank])
      EXPECT_TRUE(torch::equal(gradient, found[rank].at(name))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, PipelineParity,
                         testing::Values(Way{"naive", 1, 1}, Way{"1f1b", 1, 1}, Way{"interleaved", 1, 2},
                                         Way{"naive", 2, 1}, Way{"gpipe", 2, 1}, Way{"1f1b", 2, 1},
                                         Way{"interleaved", 2, 2}, Way{"interleaved", 2, 3},
                                         Way{"gpipe", 3, 1}, Way{"1f1b", 3, 1}, Way{"interleaved", 3, 2},
                                         Way{"naive", 4, 1}, Way{"gpipe", 4, 1}, Way{"1f1b", 4, 1},
                                         Way{"interleaved", 4, 2}, Way{"interleaved", 4, 3}),
                         [](const auto& way) {
                           return std::string(way.param.schedule) + "_" + std::to_string(way.param.ranks) +
                                  "x" + std::to_string(way.param.chunks);
                         });

TEST(PipelineSteps, OfEveryNameAreTheStepByHand) {
  const auto x = random(1, {6, kDim}), y = random(2, {6, kDim});
  for (const int world : {1, 2, 4}) {
    on_ranks(world, [&](Communicator& comm) {
      PipelineComms comms(comm);
      const auto run = [&](const auto& step) {
        ShardedMLP stage(kDim, kDepth, comm.rank(), world, 5);
        const auto loss = step(stage);
        auto all = copies_of(gradients_of(*stage));
        all.push_back(loss.defined() ? loss : torch::zeros({}));
        return all;
      };
      const auto expected = run([&](auto& stage) {
        return naive_pipeline_step_by_hand(stage, comms, x, y, {6, kDim});
      });
      expect_close(run([&](auto& stage) { return naive_pipeline_step(stage, comms, x, y); }), expected,
                   "naive");
      expect_close(run([&](auto& stage) { return gpipe_pipeline_step(stage, comms, x, y, 3); }), expected,
                   "gpipe");
      expect_close(run([&](auto& stage) { return onef_oneb_pipeline_step(stage, comms, x, y, 4); }), expected,
                   "1f1b");
    });
  }
}

}  // namespace
}  // namespace lockstep::test
