// Gradient hooks: in which order they are called, what they can hide, and what they hide here.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_demo_hooks
//
// Nothing to change; docs/hooks.md explains what it prints.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  lockstep::DataParallelComms comms(lockstep::init_distributed());
  const bool prints = comms.rank() == 0;
  lockstep::FullMLP small(/*dim=*/128, /*depth=*/4);
  lockstep::FullMLP model(/*dim=*/256, /*depth=*/16);

  // 1. From the last layer to the first: that is how backward computes gradients.
  const std::string order = lockstep::demonstrate_hook_order(small, comms);
  if (prints)
    std::printf("1. Hooks of a model of 4 layers, in the order of their calls\n\n%s\n", order.c_str());

  // 2. A bucket can go as soon as its last gradient is there. Left of the bars what happened on this machine,
  // right of them what the same step would be on a slow link.
  const lockstep::SimulatedLink link = {.gbit_per_second = 10, .latency_us = 50, .world_size = 2};
  const std::string overlap = lockstep::demonstrate_overlap(model, comms, link, /*bucket_size_mb=*/1);
  if (prints) std::printf("2. Buckets of 1 MiB of a model of 16 layers\n\n%s\n", overlap.c_str());

  // 3. Does it pay? Backward with hooks against backward, then an all-reduce for each gradient.
  const auto timing = lockstep::compare_hook_vs_manual_timing(model, comms, /*rounds=*/15);
  const auto step =
      lockstep::compare_bucketed_vs_unbucketed(model, comms, {.caps_mib = {1}, .rounds = 5})[0].last;
  const auto predicted = lockstep::predict_step(step, link);
  if (prints) {
    const double backward_ms = step.backward_us / 1e3;
    std::printf("3. Backward and all-reduces, ms\n\n%-34s %8s %8s\n", "", "hooks", "manual");
    std::printf("%-34s %8.3f %8.3f\n", "here", timing.hooks_ms, timing.manual_ms);
    std::printf("%-34s %8.3f %8.3f\n\n", "on the simulated link", backward_ms + predicted.exposed_us / 1e3,
                backward_ms + predicted.exposed_manual_us / 1e3);
    std::printf("%s\n", timing.overlaps
                            ? "here buckets are reduced by another thread while backward goes on"
                            : "here nothing overlaps: no core is idle, so reducing during backward would "
                              "only slow it down;\nwhat hooks save is messages");
  }

  // Every parameter once, from the last layer on; a simulated link is no slower with hooks than without.
  lockstep::HookTracker tracker(small);
  small->forward(torch::randn({8, 128})).sum().backward();
  const auto& calls = tracker.calls();
  const bool right =
      calls.size() == small->parameters().size() && calls.front().name.starts_with("layers.3") &&
      calls.back().name.starts_with("layers.0") && predicted.exposed_us <= predicted.exposed_manual_us;
  return right ? 0 : 1;
}
