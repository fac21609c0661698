// Where a step's time goes, how it scales, and whether more ranks are worth it.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_performance [WIDTH [BATCH]]
//
// docs/performance.md explains what it prints.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int64_t width = argc > 1 ? std::atoll(argv[1]) : 128;
  const int64_t batch = argc > 2 ? std::atoll(argv[2]) : 32;
  constexpr int kSteps = 60;
  auto comm = lockstep::init_distributed();
  const bool prints = comm.rank() == 0;
  if (prints) {
    std::printf("FullMLP of 16 layers, %ld wide; %ld samples per rank; engine %s\n\n",
                static_cast<long>(width), static_cast<long>(batch), std::string(comm.engine()).c_str());
  }

  // A world's median step, by parts; the slowest rank's.
  const auto analyze = [&](lockstep::DataParallelComms& comms) {
    lockstep::FullMLP model(width, /*depth=*/16);
    lockstep::FusedAdam optimizer(model->parameters(), 1e-5);
    lockstep::DDPPerformanceAnalyzer analyzer(comms, "cpu");
    const auto input = torch::randn({batch, width});
    for (int step = 0; step < kSteps; ++step) analyzer.time_step(model, input, input, optimizer);
    return analyzer.analyze_communication_overhead();
  };

  // 1. What communication costs.
  lockstep::DataParallelComms comms(comm);
  const auto overhead = analyze(comms);
  if (prints) std::printf("1. Communication overhead\n\n%s\n", to_text(overhead).c_str());

  // 2. How it scales: the same batch per rank, in worlds of 1, 2, 4, ... ranks.
  const auto rows = lockstep::analyze_scaling_efficiency(
      comm, batch, [&](lockstep::DataParallelComms& part) { return analyze(part).median.total_ms(); });
  if (prints) std::printf("2. Scaling efficiency\n\n%s\n", lockstep::to_text(rows).c_str());

  // 3. What to expect elsewhere: the same gradients over links that are not here, nothing hidden.
  const int64_t bytes = 16 * (width * width + width) * 4;
  const auto& median = overhead.median;
  if (prints) {
    std::printf("3. Estimates: all-reduce of %.2f MiB by a ring, and what then bounds the step\n\n",
                static_cast<double>(bytes) / (1 << 20));
    std::printf("%6s %10s %8s %10s  %s\n", "ranks", "Gbit/s", "us", "ms", "bound by");
  }
  bool right = rows.front().world_size == 1 && rows.back().world_size == comm.world_size();
  for (const int ranks : {2, 8, 64}) {
    double before_ms = 1e300;
    for (const auto& [gbit, latency_us] :
         {std::pair(1.0, 50.0), std::pair(10.0, 50.0), std::pair(100.0, 5.0)}) {
      const double ms =
          lockstep::estimate_communication_time(bytes, ranks, gbit * 1e9 / 8, latency_us * 1e-6) * 1e3;
      auto there = median;
      there.communication_ms = ms;
      const auto bottleneck = lockstep::find_bottleneck(there);
      if (prints) {
        std::printf("%6d %10g %8g %10.3f  %s (%.0f%%)\n", ranks, gbit, latency_us, ms,
                    bottleneck.name.c_str(), 100 * bottleneck.share);
      }
      right = right && ms < before_ms;  // a better link is never slower
      before_ms = ms;
    }
  }
  right = right && overhead.fraction >= 0 && overhead.fraction < 1 && overhead.steps > 0;
  return right ? 0 : 1;
}
