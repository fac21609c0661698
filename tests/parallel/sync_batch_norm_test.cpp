#include "lockstep/parallel/ddp/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "comms/run_ranks.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;

/// What a rank's part of a training step came to.
struct Outcome {
  torch::Tensor output, input_gradient, weight_gradient, bias_gradient, running_mean, running_var, batches;
};

struct Case {
  std::vector<int64_t> shards;  ///< Samples of each rank.
  std::vector<int64_t> shape;   ///< Of a sample; the first is C.
  SyncBatchNormOptions options{3};
  torch::ScalarType type = torch::kFloat;
  int steps = 2;
};

int64_t total(const Case& test) {
  return std::accumulate(test.shards.begin(), test.shards.end(), int64_t{0});
}

/// Values whose mean is far from 0, in one step of several; the factors of the loss.
std::pair<torch::Tensor, torch::Tensor> make_batch(const Case& test, int step) {
  torch::manual_seed(step);
  auto shape = test.shape;
  shape.insert(shape.begin(), total(test));
  return {(torch::randn(shape, torch::kDouble) * 2 + 5).to(test.type),
          torch::randn(shape, torch::kDouble).to(test.type)};
}

template <typename Module>
void prepare(Module& module, const Case& test) {
  module->to(test.type);
  if (!module->weight.defined()) return;
  const torch::NoGradGuard no_grad;
  module->weight.copy_(torch::linspace(0.5, 1.5, module->weight.numel()));
  module->bias.copy_(torch::linspace(-1, 1, module->bias.numel()));
}

template <typename Module>
Outcome train_step(Module& module, const torch::Tensor& batch, const torch::Tensor& factors) {
  const auto input = batch.detach().clone().requires_grad_();
  module->zero_grad();
  const auto output = module->forward(input);
  (output * factors).sum().backward();
  const auto copy = [](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().clone() : tensor;
  };
  return {copy(output),
          copy(input.grad()),
          module->weight.defined() ? copy(module->weight.grad()) : torch::Tensor(),
          module->bias.defined() ? copy(module->bias.grad()) : torch::Tensor(),
          copy(module->running_mean),
          copy(module->running_var),
          copy(module->num_batches_tracked)};
}

/// Of the last step.
Outcome run_whole(const Case& test) {
  Outcome outcome;
  const auto run = [&](auto module) {
    prepare(module, test);
    for (int step = 0; step < test.steps; ++step) {
      const auto [batch, factors] = make_batch(test, step);
      outcome = train_step(module, batch, factors);
    }
  };
  if (test.shape.size() == 3) {
    run(torch::nn::BatchNorm2d(test.options));
  } else {
    run(torch::nn::BatchNorm1d(test.options));
  }
  return outcome;
}

std::vector<Outcome> run_shards(const Case& test) {
  const auto world = static_cast<int>(test.shards.size());
  std::vector<std::vector<std::pair<torch::Tensor, torch::Tensor>>> parts(test.shards.size());
  for (int step = 0; step < test.steps; ++step) {
    const auto [batch, factors] =
        make_batch(test, step);  // torch's generator is everybody's: not by the ranks
    const auto batches = batch.split_with_sizes(test.shards);
    const auto all_factors = factors.split_with_sizes(test.shards);
    for (size_t rank = 0; rank < parts.size(); ++rank)
      parts[rank].emplace_back(batches[rank], all_factors[rank]);
  }
  std::vector<Outcome> outcomes(test.shards.size());
  const auto thrown = test::run_ranks(world, [&](Communicator& comm) {
    SyncBatchNorm module(test.options, comm);
    prepare(module, test);
    const auto rank = static_cast<size_t>(comm.rank());
    for (const auto& [batch, factors] : parts[rank]) outcomes[rank] = train_step(module, batch, factors);
  });
  EXPECT_THAT(thrown, Each(""));
  return outcomes;
}

torch::Tensor join(const std::vector<Outcome>& outcomes, torch::Tensor Outcome::*part) {
  std::vector<torch::Tensor> parts;
  for (const auto& outcome : outcomes) parts.push_back(outcome.*part);
  return torch::cat(parts);
}

torch::Tensor add(const std::vector<Outcome>& outcomes, torch::Tensor Outcome::*part) {
  auto sum = (outcomes[0].*part).clone();
  for (size_t rank = 1; rank < outcomes.size(); ++rank) sum += outcomes[rank].*part;
  return sum;
}

void expect_close(const torch::Tensor& ours, const torch::Tensor& theirs, const char* what) {
  ASSERT_EQ(ours.defined(), theirs.defined()) << what;
  if (!ours.defined()) return;
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << what;
  EXPECT_EQ(ours.scalar_type(), theirs.scalar_type()) << what;
  const double tolerance = theirs.scalar_type() == torch::kDouble ? 1e-12 : 2e-5;
  EXPECT_TRUE(torch::allclose(ours, theirs, tolerance, tolerance))
      << what << " is off by " << (ours - theirs).abs().max().item<double>();
}

/// The ranks together do what torch's batch normalisation does to the whole batch.
void expect_as_whole(const Case& test) {
  SCOPED_TRACE(testing::PrintToString(test.shards) + " of " + testing::PrintToString(test.shape));
  const auto whole = run_whole(test);
  const auto ranks = run_shards(test);
  expect_close(join(ranks, &Outcome::output), whole.output, "output");
  expect_close(join(ranks, &Outcome::input_gradient), whole.input_gradient, "input gradient");
  if (test.options.affine()) {
    // The sum over ranks: what data parallel training's mean is, times the number of ranks.
    expect_close(add(ranks, &Outcome::weight_gradient), whole.weight_gradient, "weight gradient");
    expect_close(add(ranks, &Outcome::bias_gradient), whole.bias_gradient, "bias gradient");
  }
  for (const auto& rank : ranks) {
    expect_close(rank.running_mean, whole.running_mean, "running mean");
    expect_close(rank.running_var, whole.running_var, "running variance");
    if (!test.options.track_running_stats()) continue;
    EXPECT_TRUE(torch::equal(rank.batches, whole.batches));
    EXPECT_TRUE(torch::equal(rank.running_mean, ranks[0].running_mean)) << "ranks have other bits";
    EXPECT_TRUE(torch::equal(rank.running_var, ranks[0].running_var)) << "ranks have other bits";
  }
}

TEST(SyncBatchNorm, DoesToShardsWhatBatchNormDoesToTheWhole) {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    for (int64_t world = 1; world <= 4; ++world) {
      expect_as_whole(
          {.shards = std::vector<int64_t>(static_cast<size_t>(world), 4), .shape = {3, 5, 6}, .type = type});
    }
  }
}

TEST(SyncBatchNorm, TakesUnequalAndEmptyBatches) {
  for (const auto& shards : std::vector<std::vector<int64_t>>{{1, 7}, {0, 5}, {5, 0}, {2, 0, 1, 4}, {1, 1}}) {
    expect_as_whole({.shards = shards, .shape = {3, 4, 4}});
  }
}

TEST(SyncBatchNorm, TakesInputsOfTwoThreeAndMoreDimensions) {
  expect_as_whole({.shards = {3, 4}, .shape = {3}});
  expect_as_whole({.shards = {1, 1, 1}, .shape = {3}});
  expect_as_whole({.shards = {3, 4}, .shape = {3, 9}, .type = torch::kDouble});
}

TEST(SyncBatchNorm, TakesTheOptionsOfBatchNorm) {
  using O = SyncBatchNormOptions;
  for (const auto& options : {O(3).affine(false), O(3).track_running_stats(false), O(3).momentum({}),
                              O(3).momentum(0.7).eps(0.5)}) {
    expect_as_whole({.shards = {2, 3}, .shape = {3, 4, 4}, .options = options, .steps = 3});
    expect_as_whole({.shards = {2, 3}, .shape = {3, 4, 4}, .options = options, .type = torch::kDouble});
  }
}

TEST(SyncBatchNorm, NormalisesByTheSameBitsOnEveryRank) {
  // The same sample on every rank, among others.
  torch::manual_seed(3);
  const auto sample = torch::randn({1, 3, 4, 4});
  std::vector<torch::Tensor> outputs(3);
  const std::vector<torch::Tensor> others = {torch::randn({2, 3, 4, 4}), torch::randn({0, 3, 4, 4}),
                                             torch::randn({5, 3, 4, 4})};
  EXPECT_THAT(test::run_ranks(3,
                              [&](Communicator& comm) {
                                SyncBatchNorm module(3, comm);
                                const auto rank = static_cast<size_t>(comm.rank());
                                outputs[rank] = module(torch::cat({sample, others[rank]}))[0].detach();
                              }),
              Each(""));
  EXPECT_TRUE(torch::equal(outputs[0], outputs[1]));
  EXPECT_TRUE(torch::equal(outputs[0], outputs[2]));
}

TEST(SyncBatchNorm, TakesChannelsLastAndAnInputWithoutGradient) {
  torch::manual_seed(1);
  const auto batch = torch::randn({4, 3, 5, 5});
  torch::nn::BatchNorm2d whole(3);
  const auto expected = whole(batch);
  expected.pow(3).sum().backward();
  std::vector<torch::Tensor> gradients(2);
  const auto thrown = test::run_ranks(2, [&](Communicator& comm) {
    SyncBatchNorm module(3, comm);
    const auto part = batch.narrow(0, comm.rank() * 2, 2).contiguous(torch::MemoryFormat::ChannelsLast);
    const auto output = module(part);
    if (!torch::allclose(output, expected.narrow(0, comm.rank() * 2, 2), 1e-5, 1e-5))
      throw Error("another output");
    output.pow(3).sum().backward();
    gradients[static_cast<size_t>(comm.rank())] = module->weight.grad();
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_TRUE(torch::allclose(gradients[0] + gradients[1], whole->weight.grad(), 1e-4, 1e-4));
}

TEST(SyncBatchNorm, SendsNothingInEvalMode) {
  torch::manual_seed(1);
  const auto batch = torch::randn({4, 3, 5, 5});
  const auto thrown = test::run_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return;  // would be missed
    SyncBatchNorm module(3, comm);
    torch::nn::BatchNorm2d stock(3);
    module->eval();
    stock->eval();
    module->running_mean.fill_(0.5);
    stock->running_mean.fill_(0.5);
    if (!torch::equal(module(batch), stock(batch))) throw Error("another output");
    if (module->num_batches_tracked.item<int64_t>() != 0) throw Error("a batch was counted");
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(SyncBatchNorm, ExchangesCheckpointsWithBatchNorm) {
  const auto thrown = test::run_ranks(1, [&](Communicator& comm) {
    SyncBatchNorm module(3, comm);
    torch::nn::BatchNorm2d stock(3);
    stock->running_mean.fill_(0.25);
    std::stringstream file;
    torch::save(stock, file);
    torch::load(module, file);
    if (module->running_mean[0].item<float>() != 0.25F) throw Error("not loaded");
    std::stringstream back;
    torch::save(module, back);
    torch::load(stock, back);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(SyncBatchNorm, RefusesASingleValueOnAllRanksTogether) {
  const auto thrown = test::run_ranks(2, [&](Communicator& comm) {
    SyncBatchNorm module(3, comm);
    module(torch::zeros({comm.rank(), 3}));
  });
  EXPECT_THAT(thrown, Each(HasSubstr("all 2 ranks have 1 values a channel, expected more than 1")));
}

TEST(SyncBatchNorm, RefusesOtherShapesAndTypesByName) {
  const auto refusal = [](const torch::Tensor& input) {
    return test::run_ranks(1, [&](Communicator& comm) { SyncBatchNorm(3, comm)->forward(input); })[0];
  };
  EXPECT_THAT(refusal(torch::zeros({2, 4, 5})), HasSubstr("shape [2, 4, 5], expected [N, 3, ...]"));
  EXPECT_THAT(refusal(torch::zeros({3})), HasSubstr("shape [3]"));
  EXPECT_THAT(refusal(torch::zeros({2, 3}, torch::kLong)), HasSubstr("is Long on cpu"));
}

TEST(SyncBatchNorm, RefusesToBeDifferentiatedTwice) {
  const auto thrown = test::run_ranks(1, [&](Communicator& comm) {
    SyncBatchNorm module(3, comm);
    const auto input = torch::randn({4, 3}).requires_grad_();
    torch::autograd::grad({module(input).sum()}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  });
  EXPECT_THAT(thrown[0], HasSubstr("cannot be differentiated twice"));
}

}  // namespace
}  // namespace lockstep
