// DistributedDataParallel: backward() leaves the mean of all ranks' gradients. Wrap the model, call the
// wrapper instead; the rest of the loop stays.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_ddp
//   LOCKSTEP_TRACE=traces lockstep run ...      and tools/draw-trace draws the last step (docs/ddp.md)
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  constexpr int64_t kDim = 256, kDepth = 16, kBatch = 64, kSteps = 20;
  auto comm = lockstep::init_distributed();
  const int64_t share = kBatch / comm.world_size();

  // Another seed on every rank: the wrapper's constructor gives all of them rank 0's weights.
  lockstep::FullMLP model(kDim, kDepth, /*seed=*/static_cast<uint64_t>(comm.rank()));
  lockstep::DistributedDataParallel ddp(model, comm, {.bucket_cap_mib = 1});
  lockstep::FusedSGD optimizer(ddp.parameters(), 0.005);

  lockstep::FullMLP alone(kDim, kDepth, /*seed=*/0);  // trained on whole batches, to compare with
  lockstep::FusedSGD alone_optimizer(alone->parameters(), 0.005);

  torch::manual_seed(0);  // all ranks draw the same batch, and each takes its own part of it
  static const lockstep::trace::Name kForward("forward"), kBackward("backward"), kOptimizer("optimizer");
  double loss_alone = 0;
  torch::Tensor loss;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto input = torch::randn({share * comm.world_size(), kDim});
    const auto my_input = input.narrow(0, comm.rank() * share, share);

    alone_optimizer.zero_grad();
    const auto of_all = alone->forward(input, input);
    of_all.backward();
    alone_optimizer.step();
    loss_alone = of_all.item<double>();
    comm.barrier();

    optimizer.zero_grad();
    {
      const lockstep::trace::Scope scope(kForward, {.call = step});
      loss = ddp.forward(my_input, my_input);
    }
    {
      const lockstep::trace::Scope scope(kBackward, {.call = step});
      loss.backward();
    }
    const lockstep::trace::Scope scope(kOptimizer, {.call = step});
    optimizer.step();
  }

  bool right = true;
  for (size_t i = 0; i < ddp.parameters().size(); ++i) {
    right = right && torch::allclose(ddp.parameters()[i], alone->parameters()[i], 1e-4, 1e-5);
  }
  loss = loss.detach();
  comm.all_reduce(loss, lockstep::ReduceOp::kMean);
  if (comm.rank() == 0) {
    const auto log = ddp.logging_data();
    std::printf("loss over all ranks %.6f, in one process %.6f\n", loss.item<double>(), loss_alone);
    std::printf("%ld gradients, %.2f MiB, in %zu buckets on %s, reduced %s backward\n",
                static_cast<long>(log.parameters), static_cast<double>(log.gradient_bytes) / (1 << 20),
                log.rebuilt_bucket_bytes.size(), log.engine.c_str(), log.overlaps ? "during" : "after");
    std::printf("last step: backward %.0f us, communication %.0f us, of which not hidden %.0f us\n",
                log.backward_us, log.communication_us, log.exposed_us);
    std::printf("all ranks %s the weights of one process\n", right ? "have" : "do NOT have");
  }
  return right ? 0 : 1;
}
