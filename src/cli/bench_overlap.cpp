#include "cli/bench_overlap.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/bench_constants.h"
#include "cli/sample.h"
#include "cli/torch_verbs.h"
#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/comms/init.h"
#include "lockstep/comms/shared_allocator.h"
#include "lockstep/error.h"
#include "lockstep/parallel/ddp/schedule.h"
#include "lockstep/train/models/full_mlp.h"
#include "lockstep/train/optim/fused_adam.h"
#include "parallel/ddp/demo_tools.h"

namespace lockstep::cli {

namespace {

using ddp::milliseconds_of;

constexpr int64_t kTrialBatch = 64;

/// Where a step's time went, in ms. Communication is what follows backward.
struct Parts {
  double forward = 0;
  double backward = 0;
  double communication = 0;
  double optimizer = 0;
  double total() const { return forward + backward + communication + optimizer; }
};

/// A rank that trains the same model in three ways.
class Trainer {
 public:
  Trainer(const BenchOverlapOptions& options, Communicator comm)
      : comms_(std::move(comm)),
        model_(options.dim, options.depth, kBenchSeed),
        optimizer_(model_->parameters(), torch::optim::AdamOptions(kBenchLearningRate)),
        ddp_(model_, comms_.communicator(),
             {.bucket_cap_mib = options.bucket_cap_mib,
              .first_bucket_cap_mib = options.bucket_cap_mib,
              .overlap = true}) {
    use_batch(kTrialBatch);
  }

  void use_batch(int64_t batch) {
    const auto seed = static_cast<uint64_t>(comms_.rank() + 1);
    input_ = at::randn({batch, model_->dim()}, at::detail::createCPUGenerator(seed));
    target_ = at::randn({batch, model_->dim()}, at::detail::createCPUGenerator(seed + 1000));
  }

  Parts alone() {
    const auto guard = ddp_.no_sync();
    return step(/*averages=*/false);
  }
  Parts naive() {
    const auto guard = ddp_.no_sync();
    return step(/*averages=*/true);
  }
  Parts bucketed() { return step(/*averages=*/false); }

  /// The two ways must give the same gradients.
  void check() {
    const auto gradients_of = [&](bool naive) {
      optimizer_.zero_grad();
      if (naive) {
        const auto guard = ddp_.no_sync();
        ddp_.forward(input_, target_).backward();
        average_gradients(*model_, comms_);
      } else {
        ddp_.forward(input_, target_).backward();
      }
      std::vector<at::Tensor> copies;
      for (const auto& parameter : model_->parameters()) copies.push_back(parameter.grad().clone());
      return copies;
    };
    const auto expected = gradients_of(true);
    for (int round = 0; round < 2; ++round) {  // the first step sends at its end, later ones as they go
      const auto found = gradients_of(false);
      for (size_t i = 0; i < found.size(); ++i) {
        if (at::allclose(found[i], expected[i], 1e-4, 1e-7)) continue;
        throw Error(fmt::format("bench overlap: gradient {} of the two ways differs", i));
      }
    }
  }

  DdpLoggingData log() const { return ddp_.logging_data(); }
  DataParallelComms& comms() { return comms_; }

 private:
  Parts step(bool averages) {
    comms_.barrier();
    Parts parts;
    at::Tensor loss;
    parts.forward = milliseconds_of([&] {
      optimizer_.zero_grad();
      loss = ddp_.forward(input_, target_);
    });
    parts.backward = milliseconds_of([&] { loss.backward(); });
    if (averages) parts.communication = milliseconds_of([&] { average_gradients(*model_, comms_); });
    parts.optimizer = milliseconds_of([&] { optimizer_.step(); });
    return parts;
  }

  DataParallelComms comms_;
  FullMLP model_;
  FusedAdam optimizer_;
  DistributedDataParallel<FullMLPImpl> ddp_;
  at::Tensor input_, target_;
};

/// Everybody's mean of these numbers.
std::vector<double> mean_over_ranks(DataParallelComms& comms, std::vector<double> values) {
  comms.communicator().all_reduce(values, ReduceOp::kMean);
  return values;
}

/// The batch with which backward takes as long as communication: tried, and tried again, as a larger batch
/// takes less time for each sample.
int64_t choose_batch(Trainer& trainer) {
  int64_t batch = kTrialBatch;
  for (int trial = 0; trial < 3; ++trial) {
    trainer.use_batch(batch);
    trainer.naive();
    const Parts parts = trainer.naive();
    const auto mean = mean_over_ranks(trainer.comms(), {parts.backward, parts.communication});
    batch = std::max<int64_t>(1, std::llround(static_cast<double>(batch) * mean[1] / mean[0] / 8) * 8);
  }
  return batch;
}

struct Measured {
  Sample forward, backward, communication, optimizer, naive, bucketed, slower_backward, exposed, difference;
};

Measured measure(Trainer& trainer, int64_t rounds) {
  Measured measured;
  for (int64_t round = 0; round < rounds; ++round) {
    const Parts alone = trainer.alone();
    const Parts naive = trainer.naive();
    const Parts bucketed = trainer.bucketed();
    const double backward_ms = trainer.log().backward_us / 1e3;
    const double exposed_ms = trainer.log().exposed_us / 1e3;
    const double compute_ms = alone.forward + backward_ms + alone.optimizer;
    const auto mean = mean_over_ranks(
        trainer.comms(), {alone.forward, alone.backward, naive.communication, alone.optimizer, naive.total(),
                          bucketed.total(), backward_ms, exposed_ms, bucketed.total() - compute_ms});
    Sample* const into[] = {&measured.forward,         &measured.backward, &measured.communication,
                            &measured.optimizer,       &measured.naive,    &measured.bucketed,
                            &measured.slower_backward, &measured.exposed,  &measured.difference};
    for (size_t i = 0; i < mean.size(); ++i) into[i]->add(mean[i]);
  }
  return measured;
}

}  // namespace

int run_bench_overlap(const BenchOverlapOptions& options, const Invocation&) {
  Trainer trainer(options, init_distributed());
  const int64_t batch = options.batch > 0 ? options.batch : choose_batch(trainer);
  trainer.use_batch(batch);
  trainer.check();
  const Measured measured = measure(trainer, options.rounds);
  const double f = measured.forward.median(), b = measured.backward.median(),
               c = measured.communication.median(), o = measured.optimizer.median();
  const double ideal = (f + b + c + o) / (f + std::max(b, c) + o);
  const double reached = measured.naive.median() / measured.bucketed.median();
  if (trainer.comms().rank() != 0) return 0;
  const DdpLoggingData log = trainer.log();
  if (options.json.prints_text()) {
    fmt::print(
        "FullMLP({}, {}) on {} ranks over {}, {} samples each{}; {} buckets of {} MiB; {} rounds, by turns; "
        "mean "
        "over ranks, median (lowest to highest)\n\n",
        options.dim, options.depth, log.world_size, log.engine, batch,
        options.batch > 0 ? "" : " (chosen: backward as long as communication)",
        log.rebuilt_bucket_bytes.size(), options.bucket_cap_mib, options.rounds);
    for (const auto& [name, sample] :
         {std::pair("forward (F)", &measured.forward), std::pair("backward (B)", &measured.backward),
          std::pair("communication, after it (C)", &measured.communication),
          std::pair("optimizer (O)", &measured.optimizer), std::pair("naive step", &measured.naive),
          std::pair("bucketed step", &measured.bucketed),
          std::pair("  backward beside it (B')", &measured.slower_backward),
          std::pair("  exposed, as logged", &measured.exposed),
          std::pair("  exposed: step - F - B' - O", &measured.difference)}) {
      fmt::print("  {:<28} {} ms\n", name, sample->text());
    }
    fmt::print(
        "\nbucketed is {:.2f} times as fast as naive; ideal, (F+B+C+O)/(F+max(B,C)+O), is {:.2f}: {:.0f}% of "
        "it\n",
        reached, ideal, 100 * reached / ideal);
  }
  options.json.write({{"world", log.world_size},
                      {"engine", log.engine},
                      {"batch", batch},
                      {"forward_ms", f},
                      {"backward_ms", b},
                      {"communication_ms", c},
                      {"optimizer_ms", o},
                      {"naive_ms", measured.naive.median()},
                      {"bucketed_ms", measured.bucketed.median()},
                      {"overlapped_backward_ms", measured.slower_backward.median()},
                      {"exposed_ms", measured.exposed.median()},
                      {"difference_ms", measured.difference.median()},
                      {"speedup", reached},
                      {"ideal_speedup", ideal}});
  return 0;
}

}  // namespace lockstep::cli
