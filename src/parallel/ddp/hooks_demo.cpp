#include "lockstep/parallel/ddp/hooks_demo.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/parallel/ddp/bucketing.h"
#include "lockstep/parallel/ddp/schedule.h"
#include "lockstep/plan/cost.h"
#include "parallel/ddp/demo_tools.h"
#include "parallel/ddp/gradient_hook.h"
#include "parallel/ddp/replica.h"

namespace lockstep {

namespace {

constexpr int64_t kBatch = 32;

}  // namespace

struct HookTracker::Hooks {
  std::vector<ddp::GradientHook> all;
};

HookTracker::HookTracker(const AnyModel& model) : hooks_(std::make_unique<Hooks>()) {
  for (const auto& parameter : ddp::list_parameters(*model)) {
    if (!parameter.tensor.requires_grad()) continue;
    hooks_->all.emplace_back(parameter.tensor, [this, name = parameter.name] {
      const std::chrono::duration<double, std::micro> since = std::chrono::steady_clock::now() - begin_;
      calls_.push_back({.name = name, .at_us = since.count()});
    });
  }
  begin();
}

HookTracker::~HookTracker() = default;

void HookTracker::begin() {
  calls_.clear();
  begin_ = std::chrono::steady_clock::now();
}

PredictedStep predict_step(const DdpLoggingData& measured, const SimulatedLink& link) {
  const double bytes_per_second = link.gbit_per_second * 1e9 / 8;
  const auto time_us = [&](int64_t bytes) {
    return estimate_communication_time(bytes, link.world_size, bytes_per_second, link.latency_us * 1e-6) *
           1e6;
  };
  const auto& bytes =
      measured.rebuilt_bucket_bytes.empty() ? measured.bucket_bytes : measured.rebuilt_bucket_bytes;
  PredictedStep step;
  double free_us = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const double ready_us = i < measured.buckets.size() ? measured.buckets[i].ready_us : measured.backward_us;
    const double launch_us = std::max(ready_us, free_us);
    free_us = launch_us + time_us(bytes[i]);
    step.buckets.push_back({.ready_us = ready_us, .launch_us = launch_us, .done_us = free_us});
    step.communication_us += free_us - launch_us;
  }
  step.exposed_us = std::max(0.0, free_us - measured.backward_us);
  step.exposed_manual_us = step.communication_us;
  return step;
}

std::string demonstrate_hook_order(const AnyModel& model, DataParallelComms& comms) {
  ddp::drop_gradients(*model);
  const at::Tensor loss =
      model.forward(ddp::sample_input(model, kBatch, static_cast<uint64_t>(comms.rank()))).square().mean();
  HookTracker tracker(model);
  loss.backward();
  std::string text = fmt::format("{:>4}  {:>9}  {}\n", "call", "at us", "parameter");
  for (size_t i = 0; i < tracker.calls().size(); ++i) {
    text += fmt::format("{:>4}  {:>9.1f}  {}\n", i + 1, tracker.calls()[i].at_us, tracker.calls()[i].name);
  }
  ddp::drop_gradients(*model);
  comms.barrier();
  return text;
}

std::string demonstrate_overlap(const AnyModel& model, DataParallelComms& comms, const SimulatedLink& link,
                                double bucket_size_mb) {
  const auto results = compare_bucketed_vs_unbucketed(
      model, comms, {.caps_mib = {bucket_size_mb}, .rounds = 5, .batch = kBatch});
  const DdpLoggingData& log = results.front().last;
  const PredictedStep predicted = predict_step(log, link);
  std::string text =
      fmt::format("{} here: {}\n{:>6} {:>10} | {:>10} {:>10} {:>10} | {:>10} {:>10}\n", log.engine,
                  log.overlaps ? "buckets are reduced while backward goes on"
                               : "no core to spare, so buckets are reduced after backward",
                  "bucket", "bytes", "ready us", "sent us", "done us", "sent us", "done us");
  for (size_t i = 0; i < log.buckets.size(); ++i) {
    const auto& here = log.buckets[i];
    const auto& there = predicted.buckets[i];
    text += fmt::format("{:>6} {:>10} | {:>10.1f} {:>10.1f} {:>10.1f} | {:>10.1f} {:>10.1f}\n", i,
                        log.rebuilt_bucket_bytes[i], here.ready_us, here.launch_us, here.done_us,
                        there.launch_us, there.done_us);
  }
  text += fmt::format("backward ends at {:.1f} us; exposed here: {:.1f} of {:.1f} us of communication\n",
                      log.backward_us, log.exposed_us, log.communication_us);
  text += fmt::format(
      "on the right, a simulated link of {:g} Gbit/s and {:g} us: exposed {:.1f} of {:.1f} us with "
      "hooks, all of it without\n",
      link.gbit_per_second, link.latency_us, predicted.exposed_us, predicted.communication_us);
  return text;
}

HookTiming compare_hook_vs_manual_timing(const AnyModel& model, DataParallelComms& comms, int rounds) {
  const at::Tensor input = ddp::sample_input(model, kBatch, static_cast<uint64_t>(comms.rank()));
  std::vector<double> with_hooks, manual;
  HookTiming timing;
  const auto backward_ms = [&](bool averages) {
    ddp::drop_gradients(*model);
    const at::Tensor loss = model.forward(input).square().mean();
    comms.barrier();
    return ddp::milliseconds_of([&] {
      loss.backward();
      if (averages) average_gradients(*model, comms);
    });
  };
  for (int round = 0; round < rounds; ++round) {
    {
      const BucketedDDPHooks hooks(model, comms);
      backward_ms(/*averages=*/false);
      backward_ms(/*averages=*/false);
      with_hooks.push_back(backward_ms(/*averages=*/false));
      timing.overlaps = hooks.logging_data().overlaps;
    }
    backward_ms(/*averages=*/true);
    manual.push_back(backward_ms(/*averages=*/true));
  }
  ddp::drop_gradients(*model);
  timing.hooks_ms = ddp::median(with_hooks);
  timing.manual_ms = ddp::median(manual);
  return timing;
}

}  // namespace lockstep
