// Ranks with different numbers of batches.
#include "lockstep/parallel/ddp/sync_batch_norm.h"
#include "lockstep/train/models/full_mlp.h"
#include "parallel/ddp/join.h"
#include "parallel/ddp_models.h"
#include "parallel/ddp_support.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

torch::Tensor batch_of(int rank, int step) {
  return random(static_cast<uint64_t>(100 * rank + step), {2, kWidth});
}

class Join : public testing::TestWithParam<int> {
 protected:
  static int world() { return GetParam(); }
};

/// Rank r has r + 1 batches. One process that does the same by hand.
FullMLP expected_model(int world, bool divides_by_world) {
  FullMLP model(kWidth, 2, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < world; ++step) {
    optimizer.zero_grad();
    const int active = world - step;
    for (int rank = step; rank < world; ++rank) {
      const double share = 1.0 / (divides_by_world ? world : active);
      (model->forward(batch_of(rank, step)).square().mean() * share).backward();
    }
    optimizer.step();
  }
  return model;
}

TEST_P(Join, RanksThatAreDoneShadowTheOthersAndAllEndWithTheSameModel) {
  for (const bool divides_by_world : {true, false}) {
    const auto expected = expected_model(world(), divides_by_world);
    on_ranks(world(), [&](Communicator& comm) {
      FullMLP model(kWidth, 2, 1);
      DistributedDataParallel ddp(model, comm, many_buckets());
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      ddp.join(
          [&] {
            for (int step = 0; step <= comm.rank(); ++step) {
              optimizer.zero_grad();
              ddp.forward(batch_of(comm.rank(), step)).square().mean().backward();
              optimizer.step();
            }
          },
          {.divide_by_initial_world_size = divides_by_world});
      expect_close(model->parameters(), expected->parameters(), "weights");
      EXPECT_TRUE(are_equal_on_all_ranks(comm, model->parameters()));
      ddp.forward(batch_of(comm.rank(), 0)).mean().backward();  // life goes on
    });
  }
}

TEST_P(Join, WeighsSamplesAlsoWhenRanksAreDone) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    FullMLP alone(kWidth, 2, 1);
    DdpOptions options = many_buckets();
    options.unequal_batches = UnequalBatches::kGlobalMean;
    DistributedDataParallel ddp(model, comm, options);
    const auto loop = [&] {
      for (int step = 0; step <= comm.rank(); ++step) {
        model->zero_grad(/*set_to_none=*/true);
        ddp.forward(random(static_cast<uint64_t>(100 * comm.rank() + step), {1 + comm.rank(), kWidth}))
            .square()
            .mean()
            .backward();
        alone->zero_grad(/*set_to_none=*/true);
        std::vector<torch::Tensor> all;
        for (int rank = step; rank < world(); ++rank) {
          all.push_back(random(static_cast<uint64_t>(100 * rank + step), {1 + rank, kWidth}));
        }
        alone->forward(torch::cat(all)).square().mean().backward();
        expect_close(gradients_of(*model), gradients_of(*alone), "step " + std::to_string(step));
      }
    };
    for (const bool divides_by_world : {true, false}) {
      ddp.join(loop, {.divide_by_initial_world_size = divides_by_world});
    }
  });
}

TEST_P(Join, CarriesBuffersAndAccumulation) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<NormedImpl>();
    DistributedDataParallel ddp(model, comm, many_buckets());
    ddp.join([&] {
      for (int step = 0; step <= comm.rank(); ++step) {
        {
          const auto guard = ddp.no_sync();
          ddp.forward(batch_of(comm.rank(), step)).mean().backward();
        }
        ddp.forward(batch_of(comm.rank(), step)).mean().backward();
      }
    });
    EXPECT_TRUE(are_equal_on_all_ranks(comm, model->buffers()));
    EXPECT_TRUE(are_equal_on_all_ranks(comm, model->parameters()));
  });
}

/// Layers with a batch normalisation of the caller's choice between them, and one behind them.
template <typename Norm>
struct JoinedNormImpl : torch::nn::Module {
  explicit JoinedNormImpl(const std::function<Norm()>& make) {
    const torch::NoGradGuard no_grad;
    first = register_module("first", torch::nn::Linear(kWidth, kWidth));
    norm = register_module("norm", make());
    second = register_module("second", torch::nn::Linear(kWidth, kWidth));
    last_norm = register_module("last_norm", make());
    uint64_t seed = 1;
    for (auto& parameter : parameters()) parameter.copy_(random(seed++, parameter.sizes()));
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return last_norm->forward(second->forward(norm->forward(first->forward(input)).tanh()));
  }
  torch::nn::Linear first = nullptr, second = nullptr;
  Norm norm = nullptr, last_norm = nullptr;
};

TEST_P(Join, RanksThatAreDoneAddNothingToTheStatisticsOfSyncBatchNorm) {
  // Rank r has r + 1 batches, each for a backward in no_sync and one that is averaged.
  using Whole = JoinedNormImpl<torch::nn::BatchNorm1d>;
  const auto whole = std::make_shared<Whole>([] { return torch::nn::BatchNorm1d(kWidth); });
  torch::optim::SGD alone(whole->parameters(), 0.1);
  for (int step = 0; step < world(); ++step) {
    alone.zero_grad();
    for (const int half : {0, 1}) {
      std::vector<torch::Tensor> batches;
      for (int rank = step; rank < world(); ++rank) batches.push_back(batch_of(rank, 2 * step + half));
      auto outputs = whole->forward(torch::cat(batches)).chunk(world() - step);
      auto loss = torch::zeros({});
      for (const auto& output : outputs) loss = loss + output.pow(3).mean() / world();
      loss.backward();
    }
    alone.step();
  }
  for (const bool overlaps : {true, false}) {
    on_ranks(world(), [&](Communicator& comm) {
      using Synced = JoinedNormImpl<SyncBatchNorm>;
      auto own = comm.split(0).value();
      const auto model = std::make_shared<Synced>([&] { return SyncBatchNorm(kWidth, own); });
      DdpOptions options = many_buckets();
      options.overlap = overlaps;
      options.broadcast_buffers = overlaps;  // both ways
      DistributedDataParallel ddp(model, comm, options);
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      for (const bool again : {false, true}) {
        ddp.join([&] {
          for (int step = again ? 1 : 0; step <= comm.rank(); ++step) {  // later rank 0 has none
            optimizer.zero_grad();
            {
              const auto guard = ddp.no_sync();
              ddp.forward(batch_of(comm.rank(), 2 * step)).pow(3).mean().backward();
            }
            ddp.forward(batch_of(comm.rank(), 2 * step + 1)).pow(3).mean().backward();
            if (!again) optimizer.step();
          }
        });
        if (again) continue;
        expect_close(model->parameters(), whole->parameters(), "weights", 1e-4);
        expect_close(model->buffers(), whole->buffers(), "buffers", 1e-4);
      }
      EXPECT_TRUE(are_equal_on_all_ranks(comm, model->parameters()));
      EXPECT_TRUE(are_equal_on_all_ranks(comm, model->buffers()));
      ddp.forward(batch_of(comm.rank(), 0)).mean().backward();  // as before, without a join
    });
  }
}

TEST_P(Join, RanksMaySkipDifferentBackwards) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    ddp.join([&] {
      for (int step = 0; step < 4; ++step) {
        const auto loss = ddp.forward(batch_of(comm.rank(), step)).mean();
        if (step != comm.rank()) loss.backward();
      }
      if (comm.rank() == 0) ddp.forward(batch_of(0, 0));
    });
    EXPECT_EQ(ddp.logging_data().steps, 3);
    ddp.forward(batch_of(comm.rank(), 0)).mean().backward();
    EXPECT_TRUE(are_equal_on_all_ranks(comm, gradients_of(*model)));
  });
}

TEST_P(Join, ActiveRanksThatMakeDifferentCallsAreNamed) {
  on_ranks(world(), [&](Communicator& comm) {
    const auto model = std::make_shared<NormedImpl>();
    DistributedDataParallel ddp(model, comm, many_buckets());
    const auto text = thrown_by([&] {
      ddp.join([&] {
        for (int step = 0; step < 3; ++step) {
          const auto loss = ddp.forward(batch_of(comm.rank(), step)).mean();
          if (step == 1 && comm.rank() == 0) continue;
          loss.backward();
        }
      });
    });
    EXPECT_THAT(text, HasSubstr("rank 0 begins a forward (buffers), rank " + std::to_string(world() - 1) +
                                " a backward"));
    comm.barrier();
  });
}

TEST_P(Join, APhaseThatNoRankCanBeInIsRefused) {
  on_ranks(world(), [&](Communicator& comm) {
    ddp::JoinState state(comm);
    state.begin({});
    if (comm.rank() == 0) {  // what another rank sends is checked before use
      std::vector<int64_t> forged = {1, 99, 0, 0, -7};
      std::vector<int64_t> all(forged.size() * static_cast<size_t>(world()));
      comm.all_gather(forged, all);
    } else {
      EXPECT_THAT(thrown_by([&] { state.tell({.is_active = true, .phase = ddp::Phase::kBackward}); }),
                  HasSubstr("rank 0 begins phase 99"));
    }
  });
}

TEST_P(Join, ThrowsOnAllRanksWhenOneIsDoneIfSoAsked) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    const auto text = thrown_by([&] {
      ddp.join(
          [&] {
            for (int step = 0; step <= comm.rank(); ++step) ddp.forward(batch_of(0, step)).mean().backward();
          },
          {.throw_on_early_termination = true});
    });
    EXPECT_THAT(text, HasSubstr("rank 0 has no more inputs"));
    comm.barrier();
  });
}

TEST_P(Join, ARankThatThrowsInItsLoopIsNamedToTheOthers) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    const bool fails = comm.rank() == 0;
    const auto text = thrown_by([&] {
      ddp.join([&] {
        for (int step = 0; step < 3; ++step) {
          if (fails && step == 1) throw std::runtime_error("a bad file");
          ddp.forward(batch_of(0, step)).mean().backward();
        }
      });
    });
    EXPECT_THAT(text, HasSubstr(fails ? "a bad file" : "rank 0 threw in its loop"));
    comm.barrier();
  });
}

TEST_P(Join, ABackwardThatThrowsIsToldToTheOthers) {
  on_ranks(world(), [&](Communicator& comm) {
    FullMLP model(kWidth, 2, 1);
    DistributedDataParallel ddp(model, comm, many_buckets());
    const bool fails = comm.rank() == 0;
    if (fails) {
      model->parameters()[0].register_hook(
          [](const at::Tensor&) { throw std::runtime_error("a bad sample"); });
    }
    const auto text = thrown_by([&] {
      ddp.join([&] {
        for (int step = 0; step < 3; ++step) ddp.forward(batch_of(0, step)).mean().backward();
      });
    });
    EXPECT_THAT(text, HasSubstr(fails ? "a bad sample" : "backward did not come to its end"));
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Join, testing::Values(2, 3, 4), testing::PrintToStringParamName());

}  // namespace
}  // namespace lockstep::test
