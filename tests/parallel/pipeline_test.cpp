// How a pipeline runs its plan, keeps tied weights together, and fails.
#include <random>

#include "lockstep/plan/pipeline_text.h"
#include "lockstep/plan/pipeline_verify.h"
#include "lockstep/trace/session.h"
#include "parallel/pipeline_models.h"
#include "parallel/pipeline_support.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(PipelineRun, HasThePeakOfLiveActivationsThatItsPlanHas) {
  for (const auto& [schedule, ranks, chunks] : std::vector<std::tuple<const char*, int, int>>{
           {"naive", 3, 1}, {"gpipe", 3, 1}, {"1f1b", 4, 1}, {"interleaved", 2, 2}}) {
    for (const int microbatches : {2, 6}) {
      on_ranks(ranks, [&, schedule = schedule, chunks = chunks](Communicator& comm) {
        Pipeline pipeline(chunks_of(mlp(kSmallDim, 8), comm, chunks), comm, mean_squared_error,
                          {.schedule = schedule, .microbatches = microbatches});
        const auto verdict = plan::verify_pipeline(pipeline.plan());
        const auto x = random(1, {12, kSmallDim});
        for (int step = 0; step < 2; ++step) {
          pipeline.step(x, x);
          EXPECT_EQ(pipeline.report().peak_activations,
                    verdict.peak_activations[static_cast<size_t>(comm.rank())])
              << schedule;
          EXPECT_EQ(pipeline.report().actions.size(),
                    pipeline.plan().actions[static_cast<size_t>(comm.rank())].size());
        }
      });
    }
  }
}

TEST(PipelineRun, IsTracedAsItsPlanSays) {
  std::vector<std::vector<std::string>> expected(3);
  trace::start();
  on_ranks(3, [&](Communicator& comm) {
    Pipeline pipeline(chunks_of(mlp(kSmallDim, 4), comm), comm, mean_squared_error, {.microbatches = 4});
    const auto x = random(1, {8, kSmallDim});
    pipeline.step(x, x);
    for (const auto& action : pipeline.plan().actions[static_cast<size_t>(comm.rank())]) {
      if (action.is_compute()) expected[static_cast<size_t>(comm.rank())].push_back(plan::to_string(action));
    }
  });
  std::vector<std::vector<std::string>> found(3);
  for (const auto& span : trace::stop().spans) {
    if (span.stream != trace::Stream::kCompute) continue;
    EXPECT_EQ(span.call, 1);
    found[static_cast<size_t>(span.rank)].push_back(span.name);
  }
  EXPECT_EQ(found, expected);
}

at::Tensor word_loss(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

TEST(TiedWeights, StayTheSameBitForBitAndTrainAsInOneProcess) {
  constexpr int kSteps = 4;
  const auto words_of = [](int step) {
    return random(30 + static_cast<uint64_t>(step), {10}).mul(3).abs().to(torch::kLong).clamp_max(6);
  };
  Embedding embedding(7, kSmallDim);
  Head head(embedding->weight);
  torch::optim::SGD alone({embedding->weight}, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    alone.zero_grad();
    // Two steps that accumulate.
    for (const int half : {0, 1}) {
      const auto words = words_of(2 * step + half);
      (word_loss(head->forward(embedding->forward(words).tanh()), words) / 2).backward();
    }
    alone.step();
  }
  for (const int world : {2, 3}) {
    on_ranks(world, [&](Communicator& comm) {
      const bool is_last = comm.rank() + 1 == world;
      torch::nn::Sequential stage;
      torch::Tensor weight;
      if (comm.rank() == 0) {
        Embedding first(7, kSmallDim);
        weight = first->weight;
        stage->push_back(first);
        stage->push_back(torch::nn::Functional([](const torch::Tensor& x) { return x.tanh(); }));
      } else if (is_last) {
        Head last(torch::zeros({7, kSmallDim}));  // the lowest rank's counts
        weight = last->weight;
        stage->push_back(last);
      } else {
        stage->push_back(torch::nn::Identity());
      }
      PipelineOptions options = {.microbatches = 3};
      if (weight.defined()) options.tied["words"] = weight;
      Pipeline pipeline(stage, comm, word_loss, options);
      std::optional<torch::optim::SGD> optimizer;
      if (weight.defined())
        optimizer.emplace(std::vector{weight}, torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < kSteps; ++step) {
        if (optimizer) optimizer->zero_grad();
        for (const int half : {0, 1})
          pipeline.step(words_of(2 * step + half), words_of(2 * step + half), 0.5);
        if (optimizer) optimizer->step();
      }
      auto of_first = weight.defined() ? weight.detach().clone() : torch::zeros({7, kSmallDim});
      comm.broadcast(of_first);
      if (!weight.defined()) return;
      EXPECT_TRUE(torch::allclose(weight, embedding->weight, 1e-4, 1e-5));
      EXPECT_TRUE(torch::equal(of_first, weight)) << "rank " << comm.rank();
    });
  }
}

struct FaultyImpl : torch::nn::Module {
  explicit FaultyImpl(int at_call) : remaining(at_call) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (remaining-- == 0) throw std::runtime_error("this stage is broken");
    return x * 2;
  }
  int remaining;
};
TORCH_MODULE(Faulty);

TEST(PipelineFailures, AnExceptionInOneStageIsAnErrorOnAllThatNamesRankActionAndMicroBatch) {
  const auto x = random(1, {8, kSmallDim});
  for (const int at_call : {2, 6}) {  // in the step that learns shapes, and in the next
    const auto thrown = run_ranks(3, [&](Communicator& comm) {
      torch::nn::Sequential stage;
      stage->push_back(torch::nn::Linear(kSmallDim, kSmallDim));
      if (comm.rank() == 1) stage->push_back(Faulty(at_call));
      Pipeline pipeline(stage, comm, mean_squared_error, {.microbatches = 4});
      for (int step = 0; step < 3; ++step) pipeline.step(x, x);
    });
    for (const auto& text : thrown) {
      EXPECT_THAT(text,
                  AllOf(HasSubstr("rank 1, action 1F2 (micro-batch 2)"), HasSubstr("this stage is broken")));
    }
  }
}

TEST(PipelineFailures, OtherShapesForTheSameInputAreRefused) {
  struct ShrinkingImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return ++calls > 4 ? x.narrow(1, 0, 2) : x * 1; }
    int calls = 0;
  };
  TORCH_MODULE(Shrinking);
  const auto x = random(1, {8, kSmallDim});
  const auto thrown = run_ranks(2, [&](Communicator& comm) {
    torch::nn::Sequential stage;
    if (comm.rank() == 0) stage->push_back(Shrinking());
    if (comm.rank() == 1) stage->push_back(torch::nn::Identity());
    Pipeline pipeline(stage, comm, [](const auto& y, const auto&) { return y.sum(); }, {.microbatches = 4});
    for (int step = 0; step < 2; ++step) pipeline.step(x, x);
  });
  for (const auto& text : thrown) {
    EXPECT_THAT(text,
                AllOf(HasSubstr("action 0F0 (micro-batch 0)"), HasSubstr("[2, 2] of Float, and was [2, 4]")));
  }
}

TEST(PipelineFailures, CallsThatDoNotFitAreTheSameErrorOnAllAndHarmless) {
  const auto x = random(1, {8, kSmallDim});
  on_ranks(2, [&](Communicator& comm) {
    const bool is_first = comm.rank() == 0;
    Pipeline pipeline(chunks_of(mlp(kSmallDim, 4), comm), comm, mean_squared_error, {.microbatches = 4});
    EXPECT_THAT(
        thrown_by([&] { is_first ? pipeline.step(x, x) : pipeline.evaluate(x, x); }),
        HasSubstr("rank 0 runs a step of 1f1b with 4 micro-batches and 1 chunk, rank 1 an evaluation"));
    EXPECT_THAT(thrown_by([&] { pipeline.step(x, x.narrow(0, 0, 7)); }),
                HasSubstr("rank 0's input has 8 samples, rank 1's target 7"));
    EXPECT_THAT(thrown_by([&] { pipeline.step(x.narrow(0, 0, 3), x.narrow(0, 0, 3)); }),
                HasSubstr("3 samples cannot be cut into 4 micro-batches"));
    EXPECT_THAT(thrown_by([&] { pipeline.step({}, x); }), HasSubstr("gave no input"));
    pipeline.step(x, x);
  });
}

TEST(PipelineFailures, WhatCannotBeRunIsRefusedByName) {
  on_ranks(2, [&](Communicator& comm) {
    const auto stage = chunks_of(mlp(kSmallDim, 4), comm);
    const auto refusal = [&](const PipelineOptions& options) {
      return thrown_by([&] { const Pipeline pipeline(stage, comm, mean_squared_error, options); });
    };
    EXPECT_THAT(refusal({.schedule = "zb-h1"}), HasSubstr("zb-h1 splits backward"));
    EXPECT_THAT(refusal({.schedule = "1g1b"}), HasSubstr("1f1b"));
    EXPECT_THAT(refusal({.microbatches = 0}), HasSubstr("0"));
  });
}

TEST(Partition, SpreadsRemaindersAndNeverLeavesAStageEmpty) {
  EXPECT_EQ(cut_by_count(16, 4), Cuts({0, 4, 8, 12, 16}));
  EXPECT_EQ(cut_by_count(7, 3), Cuts({0, 3, 5, 7}));
  EXPECT_THAT(thrown_by([] { cut_by_count(3, 4); }), HasSubstr("3 layers cannot be cut into 4 stages"));
}

TEST(Partition, ByWeightMakesTheHeaviestStageAsLightAsCanBe) {
  EXPECT_EQ(cut_by_weight({1, 1, 1, 1, 4}, 2), Cuts({0, 4, 5}));
  EXPECT_EQ(cut_by_weight({9, 1, 1, 1, 1}, 3), Cuts({0, 1, 2, 5}));
  std::mt19937 dice(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> weights(1 + dice() % 8);
    for (double& weight : weights) weight = static_cast<double>(dice() % 10);
    const int stages = 1 + static_cast<int>(dice() % weights.size());
    const auto heaviest_of = [&](const Cuts& cuts) {
      double heaviest = 0;
      for (size_t s = 0; s + 1 < cuts.size(); ++s) {
        double sum = 0;
        for (int64_t i = cuts[s]; i < cuts[s + 1]; ++i) sum += weights[static_cast<size_t>(i)];
        heaviest = std::max(heaviest, sum);
      }
      return heaviest;
    };
    const Cuts found = cut_by_weight(weights, stages);
    // All other ways to cut: choose stages - 1 of the borders.
    const auto borders = static_cast<int>(weights.size()) - 1;
    for (int mask = 0; mask < 1 << borders; ++mask) {
      Cuts other = {0};
      for (int i = 0; i < borders; ++i) {
        if ((mask >> i & 1) != 0) other.push_back(i + 1);
      }
      other.push_back(static_cast<int64_t>(weights.size()));
      if (static_cast<int>(other.size()) != stages + 1) continue;
      EXPECT_LE(heaviest_of(found), heaviest_of(other));
    }
    for (size_t s = 0; s + 1 < found.size(); ++s) EXPECT_LT(found[s], found[s + 1]);
  }
}

TEST(Partition, ByParametersAndByTimeCutTheVeryModel) {
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 2),
                              torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  EXPECT_EQ(cut_by_parameters(model, 2), Cuts({0, 1, 5}));
  on_ranks(2, [&](Communicator& comm) {
    torch::nn::Sequential own(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 2));
    const Cuts cuts = cut_by_time(own, random(1, {4, 2}), 2, comm);
    EXPECT_TRUE(are_equal_on_all_ranks(comm, {torch::tensor(cuts, torch::kLong)}));
    for (const auto& parameter : own->parameters()) EXPECT_FALSE(parameter.grad().defined());
    const auto last = take_stage(own, cuts, 1);
    EXPECT_TRUE(last->parameters().back().is_same(own->parameters().back()));
  });
}

TEST(MicroBatches, DifferByOneSampleAtMostAndKeepTheirOrder) {
  const auto batch = torch::arange(7);
  const auto parts = split_into_microbatches(batch, 3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].size(0), 3);
  EXPECT_EQ(parts[2].size(0), 2);
  EXPECT_TRUE(torch::equal(torch::cat(parts), batch));
  EXPECT_THAT(thrown_by([&] { split_into_microbatches(batch, 8); }), HasSubstr("7 samples"));
}

TEST(ShardedMlp, HasTheLayersOfTheWholeModel) {
  const FullMLP whole(kSmallDim, 7, 5);
  const auto expected = whole->named_parameters();
  for (const int world : {1, 2, 3, 7}) {
    size_t count = 0;
    torch::Tensor x = random(1, {2, kSmallDim});
    for (int rank = 0; rank < world; ++rank) {
      ShardedMLP part(kSmallDim, 7, rank, world, 5);
      for (const auto& item : part->named_parameters()) {
        EXPECT_TRUE(torch::equal(item.value(), expected[item.key()])) << item.key();
        ++count;
      }
      x = part->forward(x);
    }
    EXPECT_EQ(count, expected.size());
    EXPECT_TRUE(torch::allclose(x, FullMLP(whole)->forward(random(1, {2, kSmallDim}))));
  }
}

}  // namespace
}  // namespace lockstep::test
