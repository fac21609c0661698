// What would train wrongly without a word is an error that names it, on all ranks.
#include <fmt/format.h>

#include <limits>
#include <sstream>

#include "lockstep/error.h"
#include "lockstep/train/models/full_mlp.h"
#include "parallel/ddp/replica.h"
#include "parallel/ddp_models.h"
#include "parallel/ddp_support.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Misuse : public testing::TestWithParam<int> {
 protected:
  static int world() { return GetParam(); }
};

TEST_P(Misuse, ModelsOfDifferentShapesAreRefusedOnAllRanksInTheSameWords) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(comm.rank() == comm.world_size() - 1 ? kWidth + 1 : kWidth, 2);
    const auto text = thrown_by([&] { DistributedDataParallel ddp(model, comm); });
    EXPECT_EQ(text,
              fmt::format("DistributedDataParallel: rank 0 has parameter 'layers.0.weight' of shape [4, 4], "
                          "strides [4, 1], Float, rank {} has parameter 'layers.0.weight' of shape [5, 5], "
                          "strides [5, 1], Float; hint: all ranks must make the same model",
                          world() - 1));
    comm.barrier();
  });
}

TEST_P(Misuse, ModelsWithDifferentNumbersOfParametersAreRefused) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, comm.rank() == 0 ? 2 : 1);
    EXPECT_THAT(
        thrown_by([&] { DistributedDataParallel ddp(model, comm); }),
        AllOf(HasSubstr("rank 0 has parameter 'layers.1.weight'"), HasSubstr("rank 1 has nothing more")));
    FullMLP other(kWidth, 1);
    if (comm.rank() == 1) other->parameters()[1].requires_grad_(false);
    EXPECT_THAT(thrown_by([&] { DistributedDataParallel ddp(other, comm); }),
                AllOf(HasSubstr("rank 1 has parameter 'layers.0.bias'"), HasSubstr("frozen")));
    FullMLP wide(kWidth, 1);
    if (comm.rank() == 1) wide->to(torch::kDouble);
    EXPECT_THAT(thrown_by([&] { DistributedDataParallel ddp(wide, comm); }),
                AllOf(HasSubstr("Float, rank 1"), HasSubstr("Double")));
  });
}

TEST_P(Misuse, UnequalBatchesAreRefusedWithBothSizes) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < 3; ++step) {
      EXPECT_THAT(thrown_by([&] { ddp.forward(input_of(comm, comm.rank() == 1 ? 5 : 3)).mean().backward(); }),
                  HasSubstr("ranks gave between 3 and 5 samples"));
      ddp.forward(input_of(comm)).mean().backward();
    }
    EXPECT_THAT(thrown_by([&] { ddp.forward(input_of(comm, comm.rank() == 1 ? 0 : 3)).sum().backward(); }),
                HasSubstr("ranks gave between 0 and 3 samples"));
    DdpOptions ignores = many_buckets();
    ignores.unequal_batches = UnequalBatches::kIgnore;
    DistributedDataParallel other(model, comm, ignores);
    other.forward(input_of(comm, comm.rank() + 1)).mean().backward();
  });
}

TEST_P(Misuse, ANotANumberIsNamedWithParameterAndRankBeforeAnyWeightChanges) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 3);
    DdpOptions options = many_buckets();
    options.check_finite = true;
    DistributedDataParallel ddp(model, comm, options);
    for (int step = 0; step < 2; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm)).mean().backward();
      auto input = input_of(comm);
      if (comm.rank() == 1) input[0][0] = std::nan("");
      EXPECT_THAT(
          thrown_by([&] { ddp.forward(input).mean().backward(); }),
          AllOf(HasSubstr("rank 1: the gradient of parameter 'layers."), HasSubstr("has a NaN or Inf")));
    }
  });
}

TEST_P(Misuse, WeightsThatHaveDriftedApartAreFoundByTheirHash) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 3);
    DdpOptions options = many_buckets();
    options.check_weights_every = 2;
    DistributedDataParallel ddp(model, comm, options);
    for (int step = 0; step < 5; ++step) ddp.forward(input_of(comm)).mean().backward();
    if (comm.rank() == 1) {
      const torch::NoGradGuard no_grad;
      model->parameters()[2][0][0] += 1e-6;
    }
    ddp.forward(input_of(comm)).mean().backward();
    EXPECT_THAT(thrown_by([&] { ddp.forward(input_of(comm)); }),
                HasSubstr("ddp step 6: parameter 'layers.1.weight' of rank 1 differs from rank 0's"));
  });
}

TEST_P(Misuse, HooksThatAnotherTypeOrALoadTookAwayAreSetAnew) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 3);
    DistributedDataParallel ddp(model, comm, many_buckets());
    const auto step = [&](torch::Dtype type) {
      model->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm).to(type)).mean().backward();
      EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
    };
    step(torch::kFloat);
    model->to(torch::kDouble);
    step(torch::kDouble);
    model->to(torch::kFloat);
    step(torch::kFloat);
    std::stringstream file;
    torch::save(model, file);
    torch::load(model, file);
    step(torch::kFloat);
    step(torch::kFloat);
  });
}

TEST_P(Misuse, AGradientOfAnotherTypeThanItsParameterIsConverted) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 3);
    FullMLP alone(kWidth, 2, 3);
    DistributedDataParallel ddp(model, comm, many_buckets());
    ddp.forward(input_of(comm)).mean().backward();
    model->to(torch::kDouble);  // leaves the gradients as they are
    alone->to(torch::kDouble);
    for (auto& parameter : model->parameters()) parameter.mutable_grad().zero_();
    ddp.forward(input_of(comm).to(torch::kDouble)).mean().backward();
    alone->forward(input_of(comm).to(torch::kDouble)).mean().backward();
    auto expected = gradients_of(*alone);
    for (auto& gradient : expected) comm.all_reduce(gradient, ReduceOp::kMean);
    expect_close(gradients_of(*model), expected, "gradients");
    EXPECT_EQ(model->parameters()[0].grad().scalar_type(), torch::kDouble);
  });
}

TEST_P(Misuse, AParameterThatCameLaterIsNamed) {
  struct GrowingImpl : torch::nn::Module {
    GrowingImpl() { first = register_module("first", torch::nn::Linear(kWidth, kWidth)); }
    torch::Tensor forward(const torch::Tensor& input) {
      const auto output = first->forward(input);
      return second.is_empty() ? output : second->forward(output);
    }
    torch::nn::Linear first = nullptr, second = nullptr;
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<GrowingImpl>();
    DdpOptions options = many_buckets();
    options.find_unused_parameters = true;  // which is no excuse
    DistributedDataParallel ddp(model, comm, options);
    ddp.forward(input_of(comm)).mean().backward();
    if (comm.rank() == 1) {  // one rank is enough
      model->second = model->register_module("second", torch::nn::Linear(kWidth, kWidth));
    }
    EXPECT_THAT(thrown_by([&] { ddp.forward(input_of(comm)).mean().backward(); }),
                HasSubstr("rank 1: parameter 'second.weight' came to the model"));
  });
}

TEST_P(Misuse, AGradientThatIsAViewOfTheCallersMemoryIsReducedThere) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 3);
    DistributedDataParallel ddp(model, comm, many_buckets());
    int64_t count = 0;
    for (const auto& parameter : model->parameters()) count += parameter.numel();
    const auto flat = torch::zeros({count});
    int64_t begin = 0;
    for (auto& parameter : model->parameters()) {
      parameter.mutable_grad() = flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()).detach();
      begin += parameter.numel();
    }
    for (int step = 0; step < 2; ++step) {
      flat.zero_();
      ddp.forward(input_of(comm)).mean().backward();
      EXPECT_TRUE(are_equal_on_all_ranks(comm, {flat}));
      EXPECT_GT(flat.abs().sum().item<double>(), 0);
    }
  });
}

TEST_P(Misuse, AGradientThatSharesItsMemoryIsNotReducedThere) {
  struct ViewsImpl : torch::nn::Module {
    ViewsImpl() {
      first = register_parameter("first", torch::ones({2, kWidth}));
      second = register_parameter("second", torch::ones({kWidth, 2}));
    }
    torch::Tensor forward() { return first.view({-1}) + second.view({-1}); }
    torch::Tensor first, second;
  };
  for (const bool overlaps : {false, true}) {
    on_ranks(world(), [&](Communicator& comm) {
      const auto model = std::make_shared<ViewsImpl>();
      DdpOptions options = many_buckets();
      options.overlap = overlaps;
      DistributedDataParallel ddp(model, comm, options);
      const auto rank = static_cast<float>(comm.rank());
      const auto seed = torch::full({2 * kWidth}, rank);
      const auto mean = static_cast<float>(world() - 1) / 2;
      for (int step = 0; step < 3; ++step) {
        model->zero_grad(/*set_to_none=*/true);
        ddp.forward().backward(seed);  // both gradients are views of it
        EXPECT_TRUE(torch::equal(seed, torch::full_like(seed, rank))) << "the caller's memory changed";
        for (const auto& gradient : gradients_of(*model)) {
          EXPECT_TRUE(torch::equal(gradient, torch::full_like(gradient, mean)));
        }
        EXPECT_FALSE(model->first.grad().is_alias_of(model->second.grad()));
      }
    });
  }
}

/// A loop in which the last rank skips backwards, and what the ranks threw.
struct Skip {
  int at = 2;     ///< The iteration.
  int count = 1;  ///< Iterations from there on.
  bool accumulates = false;
  DdpOptions options = many_buckets();
};

std::vector<std::string> skip_on_last_rank(int world, const Skip& skip, const auto& make_model) {
  return run_ranks(world, [&](Communicator& comm) {
    const auto model = make_model();
    DistributedDataParallel ddp(model, comm, skip.options);
    const bool skips = comm.rank() == world - 1;
    for (int i = 0; i < 12; ++i) {
      std::unique_ptr<NoSync> guard;
      if (skip.accumulates && i % 3 != 2) guard.reset(new NoSync(ddp.no_sync()));
      const auto loss = ddp.forward(input_of(comm)).mean();
      if (skips && i >= skip.at && i < skip.at + skip.count) continue;  // as after a NaN
      loss.backward();
    }
  });
}

TEST_P(Misuse, ABackwardThatOneRankSkipsIsAnErrorThatNamesRankAndCounts) {
  const auto make_model = [] { return FullMLP(kWidth, 2, 3); };
  const std::string others = world() == 2 ? "rank 0: 0" : world() == 3 ? "ranks 0, 1: 0" : "ranks 0, 1, 2: 0";
  for (const bool overlaps : {true, false}) {
    for (const auto unequal : {UnequalBatches::kRefuse, UnequalBatches::kIgnore}) {
      Skip skip;
      skip.options.overlap = overlaps;
      skip.options.unequal_batches = unequal;
      for (const int at : {0, 1, 5}) {
        skip.at = at;
        for (const int count : {1, 2}) {
          skip.count = count;
          for (const auto& text : skip_on_last_rank(world(), skip, make_model)) {
            EXPECT_THAT(text,
                        AllOf(HasSubstr(fmt::format("ddp step {}: forwards in training mode", at + 1)),
                              HasSubstr(fmt::format("{}; rank {}: {}; hint:", others, world() - 1, count))));
          }
        }
      }
      skip.accumulates = true;
      skip.count = 1;
      for (const int at : {3, 4, 5}) {  // within no_sync, and where gradients are averaged
        skip.at = at;
        for (const auto& text : skip_on_last_rank(world(), skip, make_model)) {
          EXPECT_THAT(text, AllOf(HasSubstr("ddp step 2: forwards in training mode"),
                                  HasSubstr(fmt::format("{}; rank {}: 1; hint:", others, world() - 1))));
        }
      }
    }
  }
}

TEST_P(Misuse, ABackwardThatOneRankSkipsIsAnErrorAlsoOfAModelThatIsTrainedInEvalMode) {
  const auto make_model = [] {
    FullMLP model(kWidth, 2, 3);
    model->eval();
    return model;
  };
  for (const bool accumulates : {false, true}) {
    for (const auto& text : skip_on_last_rank(world(), {.at = 4, .accumulates = accumulates}, make_model)) {
      EXPECT_THAT(text, AllOf(HasSubstr(fmt::format("ddp step {}: forwards since", accumulates ? 2 : 5)),
                              HasSubstr(fmt::format("; rank {}: 1; hint:", world() - 1))));
    }
  }
}

TEST_P(Misuse, AnEvaluationOfOneRankWithGradientsIsLegalInEvalMode) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 3);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int i = 0; i < 4; ++i) {
      ddp.forward(input_of(comm)).mean().backward();
      if (comm.rank() != 0) continue;
      model->eval();
      ddp.forward(input_of(comm));
      model->train();
    }
    EXPECT_EQ(ddp.logging_data().steps, 4);
  });
}

TEST_P(Misuse, ABackwardThatOneRankSkipsIsAnErrorAlsoIfForwardExchangesSomething) {
  for (const bool has_buffers : {true, false}) {
    Skip skip;
    if (!has_buffers) skip.options.unequal_batches = UnequalBatches::kGlobalMean;
    const auto thrown = has_buffers
                            ? skip_on_last_rank(world(), skip, [] { return std::make_shared<NormedImpl>(); })
                            : skip_on_last_rank(world(), skip, [] { return FullMLP(kWidth, 2, 3); });
    const auto last = thrown.size() - 1;
    for (size_t rank = 0; rank < last; ++rank) {
      EXPECT_THAT(thrown[rank], AllOf(HasSubstr(fmt::format("ddp step 3 on rank {}: ", rank)),
                                      HasSubstr(fmt::format("rank {} called", last))));
    }
    EXPECT_THAT(
        thrown[last],
        HasSubstr(fmt::format(
            "ddp forward 4 on rank {}, after 1 forward in training mode without a backward: ", last)));
  }
}

TEST_P(Misuse, AnOrderOfGradientsThatCannotBeIsRefused) {
  struct OneImpl : torch::nn::Module {
    OneImpl() { weight = register_parameter("weight", torch::ones({kWidth})); }
    torch::Tensor forward(const torch::Tensor& input) { return input * weight; }
    torch::Tensor weight;
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<OneImpl>();
    if (comm.rank() != 0) {
      DistributedDataParallel ddp(model, comm);
      EXPECT_THAT(thrown_by([&] { ddp.forward(input_of(comm)).mean().backward(); }),
                  HasSubstr("it has 7 in place of 0"));
      return;
    }
    auto own = comm.split(0).value();  // what a rank does in its first step, but for the order
    ddp::Replica replica(model, own);
    replica.compare_shapes();
    replica.broadcast_parameters(0);
    own.all_reduce_coalesced({torch::zeros({kWidth})}, ReduceOp::kMean);
    std::vector<int64_t> said(6, std::numeric_limits<int64_t>::min()), order = {7};
    own.all_reduce(said, ReduceOp::kMax);
    own.broadcast(order);
  });
}

TEST_P(Misuse, BackwardsThatAllRanksSkipAreLegal) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<NormedImpl>();
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int i = 0; i < 6; ++i) {
      const auto loss = ddp.forward(input_of(comm)).mean();
      if (i % 3 == 1) continue;
      loss.backward();
      EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
    }
    EXPECT_EQ(ddp.logging_data().steps, 4);
    // The next forward before a backward, as loops do that prefetch.
    auto next = ddp.forward(input_of(comm)).mean();
    for (int i = 0; i < 3; ++i) std::exchange(next, ddp.forward(input_of(comm)).mean()).backward();
    EXPECT_EQ(ddp.logging_data().steps, 7);
  });
}

TEST_P(Misuse, AParameterThatWasReplacedIsNamed) {
  struct OneImpl : torch::nn::Module {
    OneImpl() { weight = register_parameter("weight", torch::ones({kWidth})); }
    torch::Tensor forward(const torch::Tensor& input) { return input * weight; }
    torch::Tensor weight;
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<OneImpl>();
    DistributedDataParallel ddp(model, comm);
    ddp.forward(input_of(comm)).mean().backward();
    model->weight = torch::ones({kWidth}, torch::requires_grad());
    model->named_parameters(false);
    EXPECT_THAT(thrown_by([&] { ddp.forward(input_of(comm)).mean().backward(); }), HasSubstr("'weight'"));
  });
}

TEST_P(Misuse, ATiedWeightThatAnOptimizerStepsTwiceIsNamed) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      in = register_parameter("in", torch::ones({kWidth, kWidth}));
      bias = register_parameter("bias", torch::ones({kWidth}));
      out = register_parameter("out", in);
    }
    torch::Tensor forward(const torch::Tensor& input) { return (input.matmul(in) + bias).matmul(out); }
    torch::Tensor in, bias, out;
  };
  const auto train = [](Communicator& comm, const auto& parameters_of, auto make_optimizer) {
    const auto model = std::make_shared<TiedImpl>();
    DistributedDataParallel ddp(model, comm);
    auto optimizer = make_optimizer(parameters_of(model, ddp));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      ddp.forward(input_of(comm)).mean().backward();
      optimizer.step();
    }
  };
  const auto twice = [](const auto& model, const auto&) { return model->parameters(); };
  const auto once = [](const auto&, const auto& ddp) { return ddp.parameters(); };
  const auto sgd = [](const auto& all) { return torch::optim::SGD(all, 0.1); };
  const auto adam_w = [](const auto& all) {
    return torch::optim::AdamW(all, torch::optim::AdamWOptions(0.1));
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto named = HasSubstr("parameter 'in', which is also 'out', was stepped 2 times");
    EXPECT_THAT(thrown_by([&] { train(comm, twice, sgd); }), named);
    EXPECT_THAT(thrown_by([&] { train(comm, twice, adam_w); }), named);
    EXPECT_EQ(thrown_by([&] { train(comm, once, sgd); }), "");
    EXPECT_EQ(thrown_by([&] { train(comm, once, adam_w); }), "");
    const auto adam = [](const auto& all) { return torch::optim::Adam(all, torch::optim::AdamOptions(0.1)); };
    EXPECT_THAT(thrown_by([&] { train(comm, twice, adam); }), named);
    // A step, and a change of the tied weight alone by the caller.
    const auto clamping = [](const auto& all) {
      struct Clamping : torch::optim::Adam {
        using torch::optim::Adam::Adam;
        torch::Tensor step(LossClosure closure = nullptr) override {
          const auto loss = torch::optim::Adam::step(closure);
          const torch::NoGradGuard no_grad;
          param_groups()[0].params()[0].clamp_(-10, 10);
          return loss;
        }
      };
      return Clamping(all, torch::optim::AdamOptions(0.1));
    };
    EXPECT_EQ(thrown_by([&] { train(comm, once, clamping); }), "");
  });
}

TEST_P(Misuse, ASparseGradientIsRefusedByName) {
  struct SparseImpl : torch::nn::Module {
    SparseImpl() {
      table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 2).sparse(true)));
    }
    torch::Tensor forward(const torch::Tensor& tokens) { return table->forward(tokens); }
    torch::nn::Embedding table = nullptr;
  };
  on_ranks(world(), [&](Communicator& comm) {
    DistributedDataParallel ddp(std::make_shared<SparseImpl>(), comm);
    EXPECT_THAT(thrown_by([&] {
                  ddp.forward(torch::tensor({1, 2})).mean().backward();
                }),
                AllOf(HasSubstr("'table.weight' is sparse"), HasSubstr("hint:")));
  });
}

TEST_P(Misuse, OptionsThatMakeNoSenseAreRefusedByNameAndValue) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 1);
    const auto making = [&](const DdpOptions& options) {
      return thrown_by([&] { DistributedDataParallel ddp(model, comm, options); });
    };
    EXPECT_THAT(making({.bucket_cap_mib = 0}), HasSubstr("bucket_cap_mib is 0"));
    EXPECT_THAT(making({.first_bucket_cap_mib = -1}), HasSubstr("first_bucket_cap_mib is -1"));
    EXPECT_THAT(making({.check_weights_every = -2}), HasSubstr("check_weights_every is -2"));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Misuse, testing::Values(2, 3, 4), testing::PrintToStringParamName());

}  // namespace
}  // namespace lockstep::test
