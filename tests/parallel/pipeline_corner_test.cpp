// Corners in which a pipeline would train wrongly without a word, or leave ranks waiting for each other.
#include <limits>

#include "parallel/ddp/agreement.h"
#include "parallel/pipeline/step.h"
#include "parallel/pipeline_models.h"
#include "parallel/pipeline_support.h"
#include "support/refusal.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

TEST(PipelineCorners, EachStepOfAThinNameDrawsOtherMasksWhichTheSeedDecides) {
  on_ranks(1, [](Communicator& comm) {
    PipelineComms comms(comm);
    torch::nn::Sequential stage(torch::nn::Linear(kSmallDim, 64), torch::nn::Dropout(0.5));
    const auto x = random(1, {8, kSmallDim}), y = random(2, {8, 64});
    const auto loss = [&] { return gpipe_pipeline_step(stage, comms, x, y, 2).item<double>(); };
    torch::manual_seed(3);
    const double first = loss(), second = loss();
    EXPECT_NE(first, second);
    torch::manual_seed(3);
    EXPECT_EQ(loss(), first);
  });
}

struct ResidualImpl : torch::nn::SequentialImpl {
  torch::Tensor forward(const torch::Tensor& x) { return x + torch::nn::SequentialImpl::forward(x); }
};
TORCH_MODULE(Residual);

TEST(PipelineCorners, AModuleDerivedFromSequentialRunsItsOwnForward) {
  Residual model;
  model->push_back(torch::nn::Linear(kSmallDim, kSmallDim));
  const auto x = random(1, {8, kSmallDim});
  const auto expected = mean_squared_error(model->forward(x), x).item<double>();
  on_ranks(1, [&](Communicator& comm) {
    Pipeline pipeline(model, comm, mean_squared_error, {.microbatches = 2});
    EXPECT_NEAR(pipeline.step(x, x).item<double>(), expected, 1e-6);
  });
}

TEST(PipelineCorners, AStageThatChangesItsInputCannotBeRunAnew) {
  on_ranks(1, [](Communicator& comm) {
    torch::nn::Sequential stage(torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().inplace(true)),
                                torch::nn::Linear(kSmallDim, kSmallDim));
    const auto x = random(1, {8, kSmallDim});
    Pipeline pipeline(stage, comm, mean_squared_error, {.microbatches = 2, .recompute = true});
    EXPECT_THAT(thrown_by([&] { pipeline.step(x.clone(), x); }), HasSubstr("changes its input in place"));
  });
}

TEST(PipelineCorners, ATargetWithoutSamplesIsTheSameErrorOnAllAndHarmless) {
  const auto x = random(1, {8, kSmallDim});
  on_ranks(2, [&](Communicator& comm) {
    Pipeline pipeline(chunks_of(mlp(kSmallDim, 4), comm), comm, mean_squared_error);
    EXPECT_THAT(thrown_by([&] { pipeline.step(x, torch::tensor(1.0F)); }),
                HasSubstr("rank 1's target is a single number"));
    pipeline.step(x, x);
  });
}

TEST(PipelineCorners, AFormThatNoStageCanHaveMadeIsRefusedByValue) {
  using Words = std::array<int64_t, pipeline::kFormWords>;
  const auto refusal = [](const Words& words) {
    return refusal_of<Error>([&] { pipeline::form_of_words(words); });
  };
  const auto type = static_cast<int64_t>(torch::kFloat);
  const auto form = pipeline::form_of_words({type, 3, 2, 0, 5});
  EXPECT_EQ(form.sizes, std::vector<int64_t>({2, 0, 5}));
  EXPECT_EQ(form.type, torch::kFloat);
  EXPECT_EQ(pipeline::form_of_words({type, 0, 7}).sizes, std::vector<int64_t>());
  EXPECT_EQ(pipeline::form_of_words({type, 8, 1, 2, 3, 4, 5, 6, 7, 8}).sizes.size(), 8U);
  for (const int64_t dimensions : {int64_t{-1}, int64_t{-3}, int64_t{9}, std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(refusal({type, dimensions, 1}),
                HasSubstr("a tensor of " + std::to_string(dimensions) + " dimensions, expected 0 to 8"));
  }
  for (const int64_t other :
       {int64_t{-1}, int64_t{1'000}, int64_t{1} << 40, type + 256, static_cast<int64_t>(torch::kLong)}) {
    EXPECT_THAT(refusal({other, 1, 1}), HasSubstr("of type number " + std::to_string(other)));
  }
  EXPECT_THAT(refusal({type, 2, 4, -4}), HasSubstr("shape [4, -4]"));
  EXPECT_THAT(refusal({type, 3, int64_t{1} << 31, int64_t{1} << 30, 1}), HasSubstr("no memory can hold"));
}

TEST(PipelineCorners, ATextOfALengthThatCannotBeIsRefusedByRankAndValue) {
  on_ranks(3, [](Communicator& comm) {
    for (const int64_t length : {int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
      if (comm.rank() == 1) {
        std::vector<int64_t> forged = {length};
        std::vector<int64_t> all(3);
        comm.all_gather(forged, all);
      } else {
        EXPECT_THAT(thrown_by([&] { ddp::gather_texts(comm, "abc"); }),
                    HasSubstr("rank 1 announced a text of " + std::to_string(length) + " bytes"));
      }
    }
  });
}

TEST(PipelineCorners, RanksThatAskForDifferentPipelinesAreAllTold) {
  on_ranks(2, [](Communicator& comm) {
    const auto stages = chunks_of(mlp(kSmallDim, 8), comm, comm.rank() == 0 ? 1 : 2);
    EXPECT_THAT(thrown_by([&] { const Pipeline pipeline(stages, comm, mean_squared_error); }),
                HasSubstr("stages on a rank"));
  });
}

TEST(PipelineCorners, TiedWeightsThatDoNotFitAreAnErrorAlsoWhereThereIsNone) {
  on_ranks(3, [](Communicator& comm) {
    const auto stages = chunks_of(mlp(kSmallDim, 6), comm);
    PipelineOptions options;
    if (comm.rank() != 1) options.tied["words"] = torch::zeros({2 + comm.rank(), kSmallDim});
    EXPECT_THAT(thrown_by([&] { const Pipeline pipeline(stages, comm, mean_squared_error, options); }),
                HasSubstr("tied weight 'words'"));
    options.tied.clear();
    if (comm.rank() == 2) options.tied["nothing"] = torch::Tensor();
    EXPECT_THAT(thrown_by([&] { const Pipeline pipeline(stages, comm, mean_squared_error, options); }),
                HasSubstr("tied weight 'nothing': is not defined"));
  });
}

TEST(PipelineCorners, AFrozenTiedWeightGetsNoGradient) {
  on_ranks(2, [](Communicator& comm) {
    torch::nn::Linear layer(kSmallDim, kSmallDim);
    layer->weight.requires_grad_(false);
    Pipeline pipeline(torch::nn::Sequential(layer), comm, mean_squared_error,
                      {.tied = {{"weight", layer->weight}}});
    const auto x = random(1, {8, kSmallDim});
    pipeline.step(x, x);
    EXPECT_FALSE(layer->weight.grad().defined());
    EXPECT_TRUE(layer->bias.grad().defined());
  });
}

TEST(PipelineCorners, AnEvaluationLeavesTheReportOfTheStep) {
  on_ranks(2, [](Communicator& comm) {
    Pipeline pipeline(chunks_of(mlp(kSmallDim, 4), comm), comm, mean_squared_error);
    const auto x = random(1, {8, kSmallDim});
    pipeline.step(x, x);
    pipeline.evaluate(x, x);
    EXPECT_EQ(pipeline.report().actions.size(),
              pipeline.plan().actions[static_cast<size_t>(comm.rank())].size());
  });
}

TEST(PipelineCorners, AnInputWithAGraphOfItsOwnIsTakenAsNumbers) {
  on_ranks(1, [](Communicator& comm) {
    Pipeline pipeline(mlp(kSmallDim, 4), comm, mean_squared_error, {.microbatches = 4});
    auto scale = torch::ones({1}).requires_grad_();
    const auto x = random(1, {8, kSmallDim});
    pipeline.step(x * scale, x);
    EXPECT_FALSE(scale.grad().defined());
  });
}

TEST(PipelineCorners, MeasuringLayersChangesNothing) {
  on_ranks(2, [](Communicator& comm) {
    torch::nn::Sequential model(torch::nn::Linear(kSmallDim, kSmallDim),
                                torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)),
                                torch::nn::BatchNorm1d(kSmallDim), torch::nn::Dropout(0.5));
    const auto x = random(1, {8, kSmallDim});
    model->forward(x).sum().backward();
    std::vector<torch::Tensor> before;
    for (const auto& parameter : model->parameters()) before.push_back(parameter.grad().clone());
    for (const auto& buffer : model->buffers()) before.push_back(buffer.clone());
    cut_by_time(model, x, 2, comm);
    size_t next = 0;
    for (const auto& parameter : model->parameters())
      EXPECT_TRUE(torch::equal(parameter.grad(), before[next++]));
    for (const auto& buffer : model->buffers()) EXPECT_TRUE(torch::equal(buffer, before[next++]));
  });
}

TEST(PipelineCorners, ALayerThatCannotBeMeasuredIsAnErrorOnAllRanks) {
  const auto thrown = run_ranks(2, [](Communicator& comm) {
    torch::nn::Sequential model(torch::nn::Linear(kSmallDim, kSmallDim),
                                torch::nn::Linear(kSmallDim + 1, kSmallDim));
    cut_by_time(model, random(1, {8, kSmallDim}), 2, comm);
  });
  EXPECT_THAT(thrown[0], HasSubstr("shapes cannot be multiplied"));
  EXPECT_THAT(thrown[1], HasSubstr("cut_by_time on rank 0"));
}

}  // namespace
}  // namespace lockstep::test
