// What DistributedDataParallel computes is what one process computes on the whole batch.
#include <sstream>

#include "lockstep/train/models/full_mlp.h"
#include "lockstep/train/optim/clip_grad_norm.h"
#include "lockstep/train/optim/fused_adam.h"
#include "parallel/ddp_support.h"

namespace lockstep::test {
namespace {

constexpr int64_t kDim = 6;

struct Way {
  int world;
  bool overlap;
};
class Parity : public testing::TestWithParam<Way> {
 protected:
  static DdpOptions options() {
    DdpOptions options = many_buckets();
    options.overlap = GetParam().overlap;
    return options;
  }
  static int world() { return GetParam().world; }

  /// Trains `make()` on the whole batch, and by all ranks on shares of it; weights must agree after each
  /// step.
  template <typename Make>
  static void expect_same_training(const Make& make, const DdpOptions& options, double tolerance = 1e-5) {
    constexpr int kSteps = 4;
    const int64_t rows = 12;
    const auto batch_of = [&](int step) { return random(100 + static_cast<uint64_t>(step), {rows, kDim}); };
    auto alone = make(0);
    torch::optim::SGD optimizer(each_once(*alone), torch::optim::SGDOptions(0.05).momentum(0.9));
    std::vector<std::vector<torch::Tensor>> expected;
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      alone->forward(batch_of(step)).square().mean().backward();
      optimizer.step();
      expected.push_back(copies_of(alone->parameters()));
    }
    on_ranks(world(), [&](Communicator& comm) {
      auto model = make(1 + static_cast<uint64_t>(comm.rank()));  // what rank 0 has counts
      if (comm.rank() == 0) model = make(0);
      DistributedDataParallel ddp(model, comm, options);
      torch::optim::SGD own(ddp.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
      for (int step = 0; step < kSteps; ++step) {
        own.zero_grad();
        ddp.forward(shard(batch_of(step), comm.rank(), world())).square().mean().backward();
        own.step();
        expect_close(model->parameters(), expected[static_cast<size_t>(step)], "step " + std::to_string(step),
                     tolerance);
        EXPECT_TRUE(are_equal_on_all_ranks(comm, model->parameters()));
      }
    });
  }
};

TEST_P(Parity, AnMlpTrainsAsOneProcessDoes) {
  expect_same_training([](uint64_t seed) { return FullMLP(kDim, 3, seed); }, options());
}

TEST_P(Parity, AnMlpInOneBucketTrainsAsOneProcessDoes) {
  DdpOptions one = options();
  one.bucket_cap_mib = one.first_bucket_cap_mib = 25;
  expect_same_training([](uint64_t seed) { return FullMLP(kDim, 3, seed); }, one);
}

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    first = register_module("first", torch::nn::Linear(kDim, kDim));
    second = register_module("second", torch::nn::Linear(kDim, kDim));
    second->to(torch::kDouble);
    nothing = register_parameter("nothing", torch::empty({0, 3}));
    channels_last = register_parameter(
        "channels_last", torch::empty({2, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast));
    frozen = register_parameter("frozen", torch::ones({kDim}), /*requires_grad=*/false);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const auto hidden = first->forward(input * frozen).relu();
    return second->forward(hidden.to(torch::kDouble)) + nothing.sum() +
           channels_last.sum() * input.mean(1, true);
  }
  torch::nn::Linear first = nullptr, second = nullptr;
  torch::Tensor nothing, channels_last, frozen;
};
TORCH_MODULE(Mixed);

TEST_P(Parity, MixedTypesEmptyFrozenAndOddlyStridedParametersTrainAsInOneProcess) {
  expect_same_training([](uint64_t seed) { return filled(Mixed(), seed); }, options());
}

/// Words in, words out: the head's weight is the embedding's, and both uses add to its gradient.
struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    words = register_module("words", torch::nn::Embedding(kWords, kDim));
    body = register_module("body", torch::nn::Linear(kDim, kDim));
    head = register_parameter("head", words->weight);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const auto text = input.abs().mul(3).to(torch::kLong).clamp_max(kWords - 1);
    return body->forward(words->forward(text)).tanh().matmul(head.t());
  }
  static constexpr int64_t kWords = 9;
  torch::nn::Embedding words = nullptr;
  torch::nn::Linear body = nullptr;
  torch::Tensor head;
};
TORCH_MODULE(LanguageModel);

TEST_P(Parity, AnEmbeddingTiedToTheHeadTrainsAsInOneProcess) {
  expect_same_training([](uint64_t seed) { return filled(LanguageModel(), seed); }, options());
}

struct SeveralOutputsImpl : torch::nn::Module {
  SeveralOutputsImpl() {
    first = register_module("first", torch::nn::Linear(kDim, 2));
    second = register_module("second", torch::nn::Linear(kDim, 2));
  }
  std::tuple<torch::Tensor, std::vector<torch::Tensor>> forward(const torch::Tensor& x,
                                                                const torch::Tensor& y, double factor) {
    return {first->forward(x) * factor, {second->forward(y), x}};
  }
  torch::nn::Linear first = nullptr, second = nullptr;
};
TORCH_MODULE(SeveralOutputs);

TEST_P(Parity, AnyForwardSignatureAndAnyOutputWork) {
  const auto x = random(1, {12, kDim});
  const auto y = random(2, {12, kDim});
  const auto loss_of = [](const auto& outputs) {
    return std::get<0>(outputs).square().mean() + std::get<1>(outputs)[0].mean();
  };
  auto alone = filled(SeveralOutputs(), 0);
  loss_of(alone->forward(x, y, 2)).backward();
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(SeveralOutputs(), 0);
    DistributedDataParallel ddp(model.ptr(), comm, options());  // a shared_ptr does as well
    for (int step = 0; step < 3; ++step) {
      model->zero_grad();
      loss_of(ddp(shard(x, comm.rank(), world()), shard(y, comm.rank(), world()), 2)).backward();
      expect_close(gradients_of(*model), gradients_of(*alone), "gradients");
    }
    EXPECT_EQ(ddp->first->weight.sizes(), torch::IntArrayRef({2, kDim}));
  });
}

TEST_P(Parity, AccumulationUnderNoSyncEqualsOneLargeBatch) {
  const auto batch = random(3, {24, kDim});
  FullMLP alone(kDim, 3, 5);
  alone->forward(batch).square().mean().backward();
  for (const bool forward_within : {true, false}) {
    on_ranks(world(), [&](Communicator& comm) {
      FullMLP model(kDim, 3, 5);
      DistributedDataParallel ddp(model, comm, options());
      for (int step = 0; step < 3; ++step) {
        model->zero_grad();
        const auto loss_of = [&](int half) {
          return ddp.forward(shard(batch.narrow(0, 12 * half, 12), comm.rank(), world())).square().mean() / 2;
        };
        if (forward_within) {
          const auto guard = ddp.no_sync();
          loss_of(0).backward();
        } else {
          const auto loss = loss_of(0);
          const auto guard = ddp.no_sync();
          loss.backward();
        }
        loss_of(1).backward();
        expect_close(gradients_of(*model), gradients_of(*alone), "gradients");
        EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
      }
    });
  }
}

TEST_P(Parity, TwoForwardsForOneBackwardAndTwoBackwardsInARowEqualOneProcess) {
  const auto batch = random(4, {24, kDim});
  FullMLP alone(kDim, 3, 5);
  alone->forward(batch).square().mean().backward();
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kDim, 3, 5);
    DistributedDataParallel ddp(model, comm, options());
    const auto loss_of = [&](int half) {
      return ddp.forward(shard(batch.narrow(0, 12 * half, 12), comm.rank(), world())).square().mean() / 2;
    };
    for (int step = 0; step < 3; ++step) {
      model->zero_grad();
      const auto first = loss_of(0);
      const auto second = loss_of(1);
      if (step == 1) {
        first.backward();
        second.backward();
      } else {
        (first + second).backward();
      }
      expect_close(gradients_of(*model), gradients_of(*alone), "gradients");
    }
  });
}

TEST_P(Parity, AGraphOfTheGradientIsNotCorrupted) {
  // With create_graph, autograd keeps what it has put into .grad: only the caller's own copy is reduced.
  const auto batch = random(6, {12, kDim});
  on_ranks(world(), [&](Communicator& comm) {
    const auto own = shard(batch, comm.rank(), world());
    FullMLP model(kDim, 2, 5);
    FullMLP alone(kDim, 2, 5);
    const auto penalty_of = [](const torch::Tensor& loss, const FullMLP& of) {
      const auto gradients = torch::autograd::grad({loss}, of->parameters(), {}, true, /*create_graph=*/true);
      torch::Tensor sum = torch::zeros({});
      for (const auto& gradient : gradients) sum = sum + gradient.square().sum();
      return sum;
    };
    // The expected: everybody's own gradient of the penalised loss, then the mean.
    alone->forward(own).tanh().mean().backward({}, true, true);
    const auto loss_alone = alone->forward(own).tanh().mean();
    alone->zero_grad(/*set_to_none=*/true);
    (loss_alone + penalty_of(loss_alone, alone)).backward();
    auto expected = copies_of(gradients_of(*alone));
    for (auto& gradient : expected) comm.all_reduce(gradient, ReduceOp::kMean);

    DistributedDataParallel ddp(model, comm, options());
    ddp.forward(own).tanh().mean().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    model->zero_grad(/*set_to_none=*/true);
    const auto loss = ddp.forward(own).tanh().mean();
    (loss + penalty_of(loss, model)).backward();
    expect_close(gradients_of(*model), expected, "gradients");
  });
}

TEST_P(Parity, UnequalBatchesGiveTheMeanOverAllSamplesOnRequest) {
  const auto batch = random(7, {13, kDim});
  FullMLP alone(kDim, 2, 5);
  alone->forward(batch).square().mean().backward();
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kDim, 2, 5);
    DdpOptions wanted = options();
    wanted.unequal_batches = UnequalBatches::kGlobalMean;
    DistributedDataParallel ddp(model, comm, wanted);
    for (int step = 0; step < 3; ++step) {
      model->zero_grad();
      ddp.forward(shard(batch, comm.rank(), world())).square().mean().backward();
      expect_close(gradients_of(*model), gradients_of(*alone), "gradients");
    }
  });
}

TEST_P(Parity, UnequalBatchesAreWeighedOnceAlsoIfOneOutputComesFromAnother) {
  struct ChainImpl : torch::nn::Module {
    ChainImpl() {
      first = register_module("first", torch::nn::Linear(kDim, kDim));
      second = register_module("second", torch::nn::Linear(kDim, kDim));
    }
    std::vector<torch::Tensor> forward(const torch::Tensor& input) {
      const auto hidden = first->forward(input);
      const auto output = second->forward(hidden);
      return {hidden, output, output};
    }
    torch::nn::Linear first = nullptr, second = nullptr;
  };
  TORCH_MODULE(Chain);
  const auto batch = random(7, {13, kDim});
  const auto loss_of = [](const std::vector<torch::Tensor>& outputs) {
    return outputs[0].square().mean() + outputs[1].tanh().mean() + outputs[2].square().mean();
  };
  auto alone = filled(Chain(), 5);
  loss_of(alone->forward(batch)).backward();
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(Chain(), 5);
    DdpOptions wanted = options();
    wanted.unequal_batches = UnequalBatches::kGlobalMean;
    DistributedDataParallel ddp(model, comm, wanted);
    for (int step = 0; step < 3; ++step) {
      model->zero_grad();
      loss_of(ddp.forward(shard(batch, comm.rank(), world()))).backward();
      expect_close(gradients_of(*model), gradients_of(*alone), "gradients");
    }
  });
}

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    first = register_module("first", torch::nn::Linear(kDim, kDim));
    norm = register_module("norm", torch::nn::BatchNorm1d(kDim));
  }
  torch::Tensor forward(const torch::Tensor& input) { return norm->forward(first->forward(input)); }
  torch::nn::Linear first = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(Normed);

TEST_P(Parity, PlainBatchNormNormalisesEachShareByItself) {
  const auto batch = random(8, {12, kDim});
  auto alone = filled(Normed(), 5);
  torch::Tensor loss = torch::zeros({});
  for (int rank = 0; rank < world(); ++rank) {
    loss = loss + alone->forward(shard(batch, rank, world())).tanh().square().mean() / world();
  }
  loss.backward();
  on_ranks(world(), [&](Communicator& comm) {
    auto model = filled(Normed(), 5);
    DistributedDataParallel ddp(model, comm, options());
    ddp.forward(shard(batch, comm.rank(), world())).tanh().square().mean().backward();
    expect_close(gradients_of(*model), gradients_of(*alone), "gradients");
  });
}

TEST_P(Parity, ATrainingThatWasSavedAndLoadedGoesOnAsIfItHadNotStopped) {
  const auto batch_of = [](int step) { return random(200 + static_cast<uint64_t>(step), {12, kDim}); };
  on_ranks(world(), [&](Communicator& comm) {
    const auto train = [&](FullMLP& model, FusedAdam& optimizer, int begin, int end) {
      DistributedDataParallel ddp(model, comm, options());
      for (int step = begin; step < end; ++step) {
        optimizer.zero_grad();
        ddp.forward(shard(batch_of(step), comm.rank(), world())).square().mean().backward();
        optimizer.step();
      }
    };
    FullMLP whole(kDim, 3, 5);
    FusedAdam whole_optimizer(whole->parameters(), torch::optim::AdamOptions(0.01));
    train(whole, whole_optimizer, 0, 6);

    std::stringstream file, optimizer_file;
    FullMLP before(kDim, 3, 5);
    FusedAdam before_optimizer(before->parameters(), torch::optim::AdamOptions(0.01));
    train(before, before_optimizer, 0, 3);
    torch::save(before, file);
    torch::save(before_optimizer, optimizer_file);
    FullMLP after(kDim, 3, 77);
    FusedAdam after_optimizer(after->parameters(), torch::optim::AdamOptions(0.01));
    torch::load(after, file);
    torch::load(after_optimizer, optimizer_file);
    train(after, after_optimizer, 3, 6);
    expect_close(after->parameters(), whole->parameters(), "weights", 0);
  });
}

TEST_P(Parity, ClippingByTheGlobalNormIsThatOfOneProcess) {
  const auto batch = random(9, {12, kDim});
  FullMLP alone(kDim, 3, 5);
  (alone->forward(batch).square().mean() * 100).backward();
  const double expected = clip_grad_norm_(alone->parameters(), 0.5);
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kDim, 3, 5);
    DistributedDataParallel ddp(model, comm, options());
    (ddp.forward(shard(batch, comm.rank(), world())).square().mean() * 100).backward();
    const double norm = clip_grad_norm_(ddp.parameters(), 0.5);
    EXPECT_NEAR(norm, expected, 1e-5 * expected);
    EXPECT_TRUE(are_equal_on_all_ranks(comm, {torch::tensor(norm, torch::kDouble)})) << "in every bit";
    expect_close(gradients_of(*model), gradients_of(*alone), "gradients");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Parity,
                         testing::Values(Way{1, true}, Way{2, true}, Way{2, false}, Way{3, true},
                                         Way{4, true}, Way{4, false}),
                         [](const auto& way) {
                           return std::to_string(way.param.world) +
                                  (way.param.overlap ? "overlapped" : "after");
                         });

}  // namespace
}  // namespace lockstep::test
