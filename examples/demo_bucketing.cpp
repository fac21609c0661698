// Gradient buckets: how many messages, how many bytes, how long, for several sizes.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_demo_bucketing
//
// Nothing to change; docs/bucketing.md explains what it prints.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

namespace {

/// What a backward that sent every gradient by itself would have been with buckets of this size: the times at
/// which gradients came are the same for all sizes, so that noise does not choose among them.
lockstep::DdpLoggingData grouped(const lockstep::DdpLoggingData& measured, double cap_mib) {
  lockstep::DdpLoggingData step = measured;
  step.rebuilt_bucket_bytes.clear();
  step.buckets.clear();
  bool is_full = true;
  for (size_t i = 0; i < measured.buckets.size(); ++i) {
    if (is_full) {
      step.rebuilt_bucket_bytes.push_back(0);
      step.buckets.emplace_back();
    }
    step.rebuilt_bucket_bytes.back() += measured.rebuilt_bucket_bytes[i];
    step.buckets.back().ready_us = measured.buckets[i].ready_us;
    is_full = static_cast<double>(step.rebuilt_bucket_bytes.back()) >= cap_mib * 1024 * 1024;
  }
  return step;
}

void print_on_link(const std::vector<lockstep::BucketingResult>& results,
                   const lockstep::SimulatedLink& link) {
  std::printf("the same backward on a simulated link of %g Gbit/s and %g us\n\n", link.gbit_per_second,
              link.latency_us);
  std::printf("%12s %9s %17s %11s %12s\n", "bucket cap", "messages", "communication ms", "exposed ms",
              "backward ms");
  for (const auto& row : results) {
    const auto measured = grouped(results[0].last, row.bucket_cap_mib);
    const auto step = lockstep::predict_step(measured, link);
    std::printf("%8g MiB %9zu %17.3f %11.3f %12.3f\n", row.bucket_cap_mib, step.buckets.size(),
                step.communication_us / 1e3, step.exposed_us / 1e3,
                (measured.backward_us + step.exposed_us) / 1e3);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  lockstep::DataParallelComms comms(lockstep::init_distributed());
  lockstep::FullMLP model(/*dim=*/256, /*depth=*/16);  // 32 gradients, 4 MiB
  const auto results = lockstep::compare_bucketed_vs_unbucketed(
      model, comms, {.caps_mib = {0, 0.25, 1, 4, 25}, .rounds = 9, .batch = 32});

  if (comms.rank() == 0) {
    std::printf("here: %d ranks on %s, buckets reduced %s backward\n\n%s\n", comms.world_size(),
                results[0].last.engine.c_str(), results[0].last.overlaps ? "during" : "after",
                lockstep::to_text(results).c_str());
    print_on_link(results, {.gbit_per_second = 10, .latency_us = 50, .world_size = 2});
    print_on_link(results, {.gbit_per_second = 10, .latency_us = 1000, .world_size = 2});
    print_on_link(results, {.gbit_per_second = 1, .latency_us = 1, .world_size = 2});
  }

  // Buckets change the number of messages, never the bytes.
  bool right = results.front().messages == 32 && results.back().messages == 1;
  for (size_t i = 1; i < results.size(); ++i) {
    right = right && results[i].bytes == results[0].bytes && results[i].messages <= results[i - 1].messages;
  }
  return right ? 0 : 1;
}
