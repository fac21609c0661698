// Graphs that differ: from rank to rank, from step to step, or from what backward usually does.

#include "lockstep/error.h"
#include "lockstep/train/models/full_mlp.h"
#include "parallel/ddp_models.h"
#include "parallel/ddp_support.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Graph : public testing::TestWithParam<int> {
 protected:
  static int world() { return GetParam(); }
};

TEST_P(Graph, AParameterUnusedOnSomeRanksGetsTheMeanEverywhereAndOneUnusedOnAllStaysUndefined) {
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(TwoHeads(), 1);
    auto alone = filled(TwoHeads(), 1);
    DdpOptions options = many_buckets();
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(model, comm, options);
    for (int step = 0; step < 4; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      alone->zero_grad(/*set_to_none=*/true);
      const bool goes_left =
          (comm.rank() + step) % 2 == 0;  // another rank each time; rank 0 alone in a world of 1
      ddp.forward(input_of(comm), goes_left, false).mean().backward();
      alone->forward(input_of(comm), goes_left, false).mean().backward();
      for (auto& parameter : alone->left->parameters()) {
        if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
      }
      for (auto* module : {alone->left.get(), alone->body.get()}) {
        for (auto& parameter : module->parameters())
          comm.all_reduce(parameter.mutable_grad(), ReduceOp::kMean);
      }
      const bool left_is_used = world() > 1 || goes_left;
      EXPECT_EQ(model->left->weight.grad().defined(), left_is_used);
      EXPECT_FALSE(model->right->weight.grad().defined());
      expect_close(gradients_of(*model->body), gradients_of(*alone->body), "body");
      if (left_is_used) expect_close(gradients_of(*model->left), gradients_of(*alone->left), "left");
    }
  });
}

TEST_P(Graph, ARankNoneOfWhoseParametersTakesPartStillTakesPart) {
  struct SkippingImpl : torch::nn::Module {
    SkippingImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
    torch::Tensor forward(const torch::Tensor& input, bool skips, bool as_it_is) {
      if (skips) return as_it_is ? input : input * 2;
      return linear->forward(input);
    }
    torch::nn::Linear linear = nullptr;
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<SkippingImpl>();
    DdpOptions options = many_buckets();
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(model, comm, options);
    for (int step = 0; step < 4; ++step) {
      const bool skips = comm.rank() == comm.world_size() - 1;
      ddp.forward(input_of(comm).requires_grad_(), skips, /*as_it_is=*/step % 2 == 0).mean().backward();
      EXPECT_EQ(ddp.logging_data().steps, step + 1);
      ASSERT_EQ(model->linear->weight.grad().defined(), world() > 1);
      EXPECT_TRUE(world() == 1 || are_equal_on_all_ranks(comm, gradients_of(*model))) << step;
    }
  });
}

TEST_P(Graph, UnusedParametersAreNamedAtTheEndOfThatBackwardOnAllRanksAndTheNextStepWorks) {
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(TwoHeads(), 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < 3; ++step) {
      const auto text =
          thrown_by([&] { ddp.forward(input_of(comm), comm.rank() != 0, true).mean().backward(); });
      EXPECT_THAT(text, AllOf(HasSubstr("ddp step"),
                              HasSubstr("rank 0: no gradient came for parameters 'left.weight', "
                                        "'left.bias'; hint:"),
                              HasSubstr("find_unused_parameters"), Not(HasSubstr("right"))));
      ddp.forward(input_of(comm), true, true).mean().backward();
      EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
    }
  });
}

TEST_P(Graph, AnOutputThatIsNotInTheLossLeavesItsGradientsAsTheyAre) {
  struct PairImpl : torch::nn::Module {
    PairImpl() {
      first = register_module("first", torch::nn::Linear(kWidth, 1));
      second = register_module("second", torch::nn::Linear(kWidth, 1));
    }
    std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& input) {
      return {first->forward(input), second->forward(input)};
    }
    torch::nn::Linear first = nullptr, second = nullptr;
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<PairImpl>();
    DdpOptions options = many_buckets();
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(model, comm, options);
    for (int step = 0; step < 3; ++step) {
      ddp.forward(input_of(comm)).first.mean().backward();
      EXPECT_TRUE(model->first->weight.grad().defined());
      EXPECT_FALSE(model->second->weight.grad().defined());
    }
    ddp.forward(input_of(comm)).second.mean().backward();
    const auto before = model->second->weight.grad().clone();
    ddp.forward(input_of(comm)).first.mean().backward();
    EXPECT_TRUE(torch::equal(model->second->weight.grad(), before));
  });
}

TEST_P(Graph, AForwardThatIsNeverBackpropagatedDoesNoHarm) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < 3; ++step) {
      ddp.forward(random(1, {7, kWidth}));  // of another size
      if (comm.rank() == 0) {               // on one rank: not in training
        const torch::NoGradGuard no_grad;
        ddp.forward(random(1, {7, kWidth}));
      }
      if (comm.rank() == 1) {
        model->eval();
        ddp.forward(random(1, {7, kWidth}));
        model->train();
        // Autograd may be asked for gradients: that is a backward too.
        torch::autograd::grad({ddp.forward(random(1, {7, kWidth})).mean()}, model->parameters());
      }
      ddp.forward(input_of(comm)).mean().backward();
    }
    EXPECT_EQ(ddp.logging_data().steps, 3);
  });
}

/// Two weights, and a forward that returns whatever a test asks for.
struct ReturningImpl : torch::nn::Module {
  using Output = std::map<std::string, std::vector<torch::Tensor>>;
  using Forward = std::function<Output(ReturningImpl&, const torch::Tensor&)>;
  explicit ReturningImpl(Forward wanted) : act(std::move(wanted)) {
    first = register_parameter("first", torch::linspace(1, 2, kWidth));
    second = register_parameter("second", torch::linspace(-1, 1, kWidth));
  }
  Output forward(const torch::Tensor& input) { return act(*this, input); }
  torch::Tensor first, second, kept;
  const Forward act;
};

TEST_P(Graph, WhateverForwardReturnsItsGradientsAreAveraged) {
  using Loss = std::function<torch::Tensor(ReturningImpl&, ReturningImpl::Output&, const torch::Tensor&)>;
  const Loss of_first = [](auto&, auto& output, const auto& x) { return (output["a"][0] * x).sum(); };
  const Loss of_all = [](auto&, auto& output, const auto& x) {
    return (output["a"][0] * output["b"][1] * x).sum();
  };
  const Loss of_weights = [](auto& model, auto&, const auto& x) {
    return (model.first * model.second * x).sum();
  };
  const std::vector<std::tuple<const char*, ReturningImpl::Forward, Loss>> cases = {
      {"a parameter",
       [](auto& model, const auto&) {
         return ReturningImpl::Output{{"a", {model.first}}};
       },
       of_first},
      {"a view of a parameter",
       [](auto& model, const auto&) {
         return ReturningImpl::Output{{"a", {model.first.view({1, kWidth})}}};
       },
       of_first},
      {"a parameter beside an activation that the loss leaves out",
       [](auto& model, const auto& x) {
         return ReturningImpl::Output{{"a", {model.first}}, {"b", {x * model.second}}};
       },
       of_first},
      {"a parameter beside an activation",
       [](auto& model, const auto& x) {
         return ReturningImpl::Output{{"a", {model.first}}, {"b", {model.first, x * model.second}}};
       },
       of_all},
      {"an activation that is changed in place",
       [](auto& model, const auto& x) {
         return ReturningImpl::Output{{"a", {x * model.first * model.second}}};
       },
       [](auto&, auto& output, const auto&) { return output["a"][0].mul_(2).sum(); }},
      {"nothing that needs a gradient, and the loss uses the weights",
       [](auto&, const auto& x) {
         return ReturningImpl::Output{{"a", {x.detach()}}};
       },
       of_weights},
      {"nothing at all, and the loss uses the weights",
       [](auto&, const auto&) { return ReturningImpl::Output(); }, of_weights},
      {"something else than the loss uses",
       [](auto& model, const auto& x) {
         model.kept = x * model.first * model.second;
         return ReturningImpl::Output{{"a", {model.first * 2}}};
       },
       [](auto& model, auto&, const auto&) { return model.kept.square().sum(); }},
  };
  for (const auto& [name, act, loss] : cases) {
    SCOPED_TRACE(name);
    on_ranks(world(), [&, act = act, loss = loss](Communicator& comm) {
      const auto model = std::make_shared<ReturningImpl>(act);
      const auto alone = std::make_shared<ReturningImpl>(act);
      DdpOptions options = many_buckets();
      options.find_unused_parameters = true;
      DistributedDataParallel ddp(model, comm, options);
      for (int step = 0; step < 3; ++step) {
        model->zero_grad(/*set_to_none=*/true);
        alone->zero_grad(/*set_to_none=*/true);
        auto output = ddp.forward(input_of(comm));
        loss(*model, output, input_of(comm)).backward();
        auto expected = alone->forward(input_of(comm));
        loss(*alone, expected, input_of(comm)).backward();
        auto gradients = gradients_of(*alone);
        for (auto& gradient : gradients) {
          if (gradient.defined()) comm.all_reduce(gradient, ReduceOp::kMean);
        }
        expect_close(gradients_of(*model), gradients, "gradients");
        EXPECT_EQ(ddp.logging_data().steps, step + 1);
      }
    });
  }
}

TEST_P(Graph, AParameterThatForwardReturnedIsNotWatchedItself) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<ReturningImpl>([](auto& of, const auto&) {
      return ReturningImpl::Output{{"a", {of.first, of.second}}};
    });
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 1; step <= 2; ++step) {
      auto output = ddp.forward(input_of(comm));
      (output["a"][0] * output["a"][1]).sum().backward();
      if (comm.rank() == 0) (model->first * 2).sum().backward();  // of one's own
      EXPECT_EQ(ddp.logging_data().steps, step);
    }
  });
}

TEST_P(Graph, SeveralBackwardsPastTheOutputsAddUp) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = filled(TwoHeads(), 1);
    auto alone = filled(TwoHeads(), 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    const auto step = [&](auto& forward, TwoHeads of) {
      of->zero_grad(/*set_to_none=*/true);
      const auto output = forward(input_of(comm), true, true);
      of->body->weight.square().sum().backward();  // of all weights but these: no gradient
      of->left->weight.square().sum().backward();
      output.square().mean().backward();
      return gradients_of(*of);
    };
    for (int i = 0; i < 3; ++i) {
      const auto direct = [&](const auto&... args) { return alone->forward(args...); };
      auto expected = step(direct, alone);
      for (auto& gradient : expected) comm.all_reduce(gradient, ReduceOp::kMean);
      const auto wrapped = [&](const auto&... args) { return ddp.forward(args...); };
      expect_close(step(wrapped, model), expected, "gradients");
    }
  });
}

TEST_P(Graph, EachBackwardPastTheOutputsIsAveraged) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model =
        std::make_shared<ReturningImpl>([](auto&, const auto&) { return ReturningImpl::Output(); });
    DistributedDataParallel ddp(model, comm, many_buckets());
    const auto x = input_of(comm);
    auto mean = x.sum(0);
    comm.all_reduce(mean, ReduceOp::kMean);
    for (int step = 0; step < 3; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      ddp.forward(x);
      for (const auto& parameter : {model->first, model->second}) {
        (parameter * x).sum().backward();
        expect_close({parameter.grad()}, {mean}, "step " + std::to_string(step));
      }
    }
  });
}

TEST_P(Graph, ABackwardPastTheOutputsOfOneRankIsNamed) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = filled(TwoHeads(), 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    const auto text = thrown_by([&] {
      const auto output = ddp.forward(input_of(comm), true, true);
      if (comm.rank() == 0) model->body->weight.square().sum().backward();
      output.mean().backward();
    });
    if (world() == 1) {
      EXPECT_EQ(text, "");
    } else {
      EXPECT_THAT(text, HasSubstr("rank 0: 1 (and a backward past all outputs)"));
    }
  });
}

TEST_P(Graph, ABackwardWithinForwardIsAveraged) {
  struct GreedyImpl : torch::nn::Module {
    GreedyImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, 1)); }
    double forward(const torch::Tensor& input) {
      const auto loss = linear->forward(input).mean();
      loss.backward();
      return loss.item<double>();
    }
    torch::nn::Linear linear = nullptr;
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<GreedyImpl>();
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < 3; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm));
      EXPECT_EQ(ddp.logging_data().steps, step + 1);
      EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
    }
  });
}

TEST_P(Graph, ABackwardThatReachesNoOutputCannotBeWeighed) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model =
        std::make_shared<ReturningImpl>([](auto&, const auto&) { return ReturningImpl::Output(); });
    DdpOptions options = many_buckets();
    options.unequal_batches = UnequalBatches::kGlobalMean;
    DistributedDataParallel ddp(model, comm, options);
    ddp.forward(input_of(comm, comm.rank() + 1));
    EXPECT_THAT(thrown_by([&] { (model->first * model->second).sum().backward(); }),
                HasSubstr("backward reached parameters, but no output of forward"));
  });
}

TEST_P(Graph, AParameterThatTheFirstBackwardLeavesOutIsWaitedForLater) {
  struct LateImpl : torch::nn::Module {
    LateImpl() {
      late = register_module("late", torch::nn::Linear(kWidth, kWidth));
      body = register_module("body", torch::nn::Linear(kWidth, kWidth));
    }
    torch::Tensor forward(const torch::Tensor& input, bool uses_late) {
      return body->forward(uses_late ? late->forward(input) : input);
    }
    torch::nn::Linear late = nullptr, body = nullptr;  // the gradients of `late` come last
  };
  TORCH_MODULE(Late);
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(Late(), 1);
    auto alone = filled(Late(), 1);
    DdpOptions options = many_buckets();
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(model, comm, options);
    for (int step = 0; step < 4; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      alone->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm), step > 0).square().mean().backward();
      alone->forward(input_of(comm), step > 0).square().mean().backward();
      auto expected = gradients_of(*alone);
      for (auto& gradient : expected) {
        if (gradient.defined()) comm.all_reduce(gradient, ReduceOp::kMean);
      }
      expect_close(gradients_of(*model), expected, "step " + std::to_string(step));
    }
  });
}

TEST_P(Graph, AStaticGraphMayLeaveOutParametersAndIsHeldToIt) {
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(TwoHeads(), 1);
    DdpOptions options = many_buckets();
    options.static_graph = true;
    DistributedDataParallel ddp(model, comm, options);
    for (int step = 0; step < 3; ++step) ddp.forward(input_of(comm), true, false).mean().backward();
    EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model->left)));
    EXPECT_FALSE(model->right->weight.grad().defined());
    EXPECT_THAT(thrown_by([&] { ddp.forward(input_of(comm), false, true).mean().backward(); }),
                HasSubstr("the graph is not static"));
  });
}

TEST_P(Graph, AModuleThatIsCalledDirectlyIsNotSynchronised) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < 2; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      if (comm.rank() == 0) model->forward(input_of(comm)).mean().backward();
      EXPECT_EQ(model->parameters()[0].grad().defined(), comm.rank() == 0);
      EXPECT_EQ(ddp.logging_data().steps, step);
      ddp.forward(input_of(comm)).mean().backward();
    }
  });
}

TEST_P(Graph, GradientsThatAreAskedForByAutogradAreNotSynchronised) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    if (comm.rank() == 0) torch::autograd::grad({ddp.forward(input_of(comm)).mean()}, model->parameters());
    EXPECT_EQ(ddp.logging_data().steps, 0);
  });
}

TEST_P(Graph, EvaluationOnOneRankAloneDoesNotHang) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<NormedImpl>();
    DistributedDataParallel ddp(model, comm, many_buckets());
    ddp.forward(input_of(comm)).mean().backward();
    if (comm.rank() == 0) {
      const torch::NoGradGuard no_grad;
      ddp.forward(input_of(comm));
      model->eval();
      ddp.forward(input_of(comm));
      model->train();
    }
    if (comm.rank() == 0) {
      model->eval();
      ddp.forward(input_of(comm));  // with gradients, which nobody asks for
      model->train();
    }
    ddp.forward(input_of(comm)).mean().backward();
    EXPECT_EQ(ddp.logging_data().steps, 2);
  });
}

TEST_P(Graph, ParametersCanBeFrozenAndUnfrozenBetweenSteps) {
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(TwoHeads(), 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (const bool frozen : {false, true, false, true}) {
      for (auto& parameter : model->left->parameters()) parameter.requires_grad_(!frozen);
      model->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm), true, true).mean().backward();
      EXPECT_EQ(model->left->weight.grad().defined(), !frozen);
      EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model->right)));
    }
  });
}

/// Checkpointing both ways: by a backward within, and by asking autograd for the gradients of an inner graph.
class Checkpointing : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(Checkpointing, WorksAlsoIfALayerIsUsedTwice) {
  const auto [world, re_entrant] = GetParam();
  struct CheckpointedImpl : torch::nn::Module {
    CheckpointedImpl() {
      shared = register_module("shared", torch::nn::Linear(kWidth, kWidth));
      last = register_module("last", torch::nn::Linear(kWidth, kWidth));
    }
    torch::Tensor forward(const torch::Tensor& input, bool checkpoints, bool within) {
      auto x = input.detach().requires_grad_();
      for (int i = 0; i < 2; ++i) {
        if (!checkpoints) {
          x = shared->forward(x);
        } else if (within) {
          x = Checkpoint::apply(x, shared.get());
        } else {
          x = CheckpointByGrad::apply(x, shared->weight, shared->bias);
        }
        x = x.tanh();
      }
      return last->forward(x);
    }
    torch::nn::Linear shared = nullptr, last = nullptr;
  };
  TORCH_MODULE(Checkpointed);
  on_ranks(world, [&, within = re_entrant](Communicator& comm) {
    auto model = filled(Checkpointed(), 1);
    auto alone = filled(Checkpointed(), 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < 3; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      alone->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm), true, within).square().mean().backward();
      alone->forward(input_of(comm), false, within).square().mean().backward();
      auto expected = gradients_of(*alone);
      for (auto& gradient : expected) comm.all_reduce(gradient, ReduceOp::kMean);
      expect_close(gradients_of(*model), expected, "gradients");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, Checkpointing, testing::Combine(testing::Values(1, 2, 3), testing::Bool()),
                         [](const auto& way) {
                           return std::to_string(std::get<0>(way.param)) +
                                  (std::get<1>(way.param) ? "_within" : "_by_grad");
                         });

TEST_P(Graph, ASharedWeightBesideAnUnusedOneIsAveragedOnce) {
  struct SharedImpl : torch::nn::Module {
    SharedImpl() {
      shared = register_module("shared", torch::nn::Linear(kWidth, kWidth));
      unused = register_module("unused", torch::nn::Linear(kWidth, kWidth));
    }
    torch::Tensor forward(const torch::Tensor& input) {
      return shared->forward(shared->forward(input).tanh());
    }
    torch::nn::Linear shared = nullptr, unused = nullptr;
  };
  TORCH_MODULE(Shared);
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(Shared(), 1);
    auto alone = filled(Shared(), 1);
    DdpOptions options = many_buckets();
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(model, comm, options);
    alone->forward(input_of(comm)).square().mean().backward();
    auto expected = gradients_of(*alone->shared);
    for (auto& gradient : expected) comm.all_reduce(gradient, ReduceOp::kMean);
    for (int step = 0; step < 3; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm)).square().mean().backward();
      expect_close(gradients_of(*model->shared), expected, "gradients");
      EXPECT_FALSE(model->unused->weight.grad().defined());
    }
  });
}

TEST_P(Graph, AParameterThatOnlyTheLossUsesTakesPart) {
  struct UncertainImpl : torch::nn::Module {
    UncertainImpl() {
      linear = register_module("linear", torch::nn::Linear(kWidth, kWidth));
      log_sigma = register_parameter("log_sigma", torch::zeros({}));
    }
    torch::Tensor forward(const torch::Tensor& input) { return linear->forward(input); }
    torch::nn::Linear linear = nullptr;
    torch::Tensor log_sigma;
  };
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<UncertainImpl>();
    DistributedDataParallel ddp(model, comm, many_buckets());
    for (int step = 0; step < 4; ++step) {
      model->zero_grad(/*set_to_none=*/true);
      const auto error = ddp.forward(input_of(comm)).square().mean();
      (error * torch::exp(-ddp->log_sigma) + ddp->log_sigma).backward();
      EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
    }
  });
}

TEST_P(Graph, AnotherBackwardAfterOneThatThrewIsSynchronised) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 3, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    ddp.forward(input_of(comm)).mean().backward();
    const auto first = ddp.forward(input_of(comm));
    const auto second = ddp.forward(input_of(comm));
    const auto key =
        model->parameters()[2].register_hook([](const at::Tensor&) { throw std::runtime_error("bad"); });
    EXPECT_NE(thrown_by([&] { first.mean().backward(); }), "");  // on all ranks
    model->parameters()[2].remove_hook(key);
    model->zero_grad(/*set_to_none=*/true);
    second.mean().backward();
    EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
  });
}

TEST_P(Graph, AnExceptionInBackwardIsOverWhenItsRankGoesOn) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 3, 1);
    const auto act = std::make_shared<AtBackward::Act>();
    struct FailingImpl : torch::nn::Module {
      FailingImpl(FullMLP of, std::shared_ptr<AtBackward::Act> wanted) : act(std::move(wanted)) {
        first = register_module("first", std::move(of));
        last = register_module("last", torch::nn::Linear(kWidth, kWidth));
      }
      torch::Tensor forward(const torch::Tensor& input) {
        return last->forward(AtBackward::apply(first->forward(input), act));
      }
      FullMLP first = nullptr;
      torch::nn::Linear last = nullptr;
      std::shared_ptr<AtBackward::Act> act;
    };
    const auto failing = std::make_shared<FailingImpl>(model, act);
    DistributedDataParallel ddp(failing, comm, many_buckets());
    *act = [] {};
    ddp.forward(input_of(comm)).mean().backward();
    const bool fails = comm.rank() == comm.world_size() - 1;
    for (int step = 0; step < 2; ++step) {
      *act = [&] {
        if (fails) throw std::runtime_error("a bad sample");
      };
      const auto text = thrown_by([&] { ddp.forward(input_of(comm)).mean().backward(); });
      EXPECT_THAT(text, HasSubstr(fails ? "a bad sample" : "backward did not come to its end"));
      // Gradients may still be on their way: their memory is not used for anything else.
      failing->zero_grad(/*set_to_none=*/true);
      const auto others = random(1, {64, kWidth});
      *act = [] {};
      failing->zero_grad(/*set_to_none=*/true);
      ddp.forward(input_of(comm)).mean().backward();
      EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*failing)));
    }
    // And when it leaves.
    *act = [&] {
      if (fails) throw std::runtime_error("a bad sample");
    };
    EXPECT_NE(thrown_by([&] {
                DistributedDataParallel short_lived(failing, comm, many_buckets());
                short_lived.forward(input_of(comm)).mean().backward();
              }),
              "");
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Graph, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

}  // namespace
}  // namespace lockstep::test
