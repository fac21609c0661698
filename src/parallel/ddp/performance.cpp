#include "lockstep/parallel/ddp/performance.h"

#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "lockstep/parallel/ddp/bucketing.h"
#include "parallel/ddp/demo_tools.h"

namespace lockstep {

namespace {

double median_of(const std::vector<StepTiming>& steps, double StepTiming::*part) {
  std::vector<double> values;
  for (const auto& step : steps) values.push_back(step.*part);
  return ddp::median(values);
}

/// 1, 2, 4, ... and the whole world.
std::vector<int> world_sizes(int whole) {
  std::vector<int> sizes;
  for (int size = 1; size < whole; size *= 2) sizes.push_back(size);
  sizes.push_back(whole);
  return sizes;
}

}  // namespace

DDPPerformanceAnalyzer::DDPPerformanceAnalyzer(DataParallelComms& comms, const std::string& device)
    : comms_(comms) {
  if (device != "cpu") {
    throw UsageError(fmt::format("DDPPerformanceAnalyzer: device '{}'; hint: only \"cpu\" is known", device));
  }
}

StepTiming DDPPerformanceAnalyzer::time_step(const AnyModel& model, const at::Tensor& input,
                                             const at::Tensor& target, torch::optim::Optimizer& optimizer) {
  if (module_ != model.module()) {
    hooks_ = std::make_shared<BucketedDDPHooks>(model, comms_);
    module_ = model.module();
    warm_ups_ = 0;
  }
  StepTiming timing = {.batch = input.size(0)};
  at::Tensor loss;
  optimizer.zero_grad();
  timing.forward_ms = ddp::milliseconds_of([&] { loss = at::mse_loss(model.forward(input), target); });
  const double both_ms = ddp::milliseconds_of([&] { loss.backward(); });
  timing.communication_ms = static_cast<BucketedDDPHooks*>(hooks_.get())->logging_data().exposed_us / 1e3;
  timing.backward_ms = both_ms - timing.communication_ms;
  timing.optimizer_ms = ddp::milliseconds_of([&] { optimizer.step(); });
  if (warm_ups_ < kWarmUp) {
    ++warm_ups_;
  } else {
    steps_.push_back(timing);
  }
  return timing;
}

CommunicationOverhead DDPPerformanceAnalyzer::analyze_communication_overhead() {
  if (steps_.empty()) {
    throw UsageError(
        fmt::format("analyze_communication_overhead: no step was timed; hint: the first {} with a model "
                    "only warm it up",
                    kWarmUp));
  }
  // The slowest rank decides.
  std::vector<double> parts;
  for (const auto part : {&StepTiming::forward_ms, &StepTiming::backward_ms, &StepTiming::communication_ms,
                          &StepTiming::optimizer_ms}) {
    parts.push_back(median_of(steps_, part));
  }
  comms_.communicator().all_reduce(parts, ReduceOp::kMax);
  CommunicationOverhead overhead;
  overhead.median = {.forward_ms = parts[0],
                     .backward_ms = parts[1],
                     .communication_ms = parts[2],
                     .optimizer_ms = parts[3],
                     .batch = steps_.back().batch};
  overhead.world_size = comms_.world_size();
  overhead.steps = static_cast<int>(steps_.size());
  const auto ranks = static_cast<double>(overhead.world_size);
  const double compute_ms = overhead.median.forward_ms + overhead.median.backward_ms;
  const double total_ms = overhead.median.total_ms();
  overhead.fraction = total_ms > 0 ? overhead.median.communication_ms / total_ms : 0;
  // One rank alone would compute all samples, and step the optimizer once.
  overhead.estimated_speedup =
      total_ms > 0 ? (ranks * compute_ms + overhead.median.optimizer_ms) / total_ms : 1;
  if (overhead.world_size > 1 && compute_ms > 0) {
    const double ms_per_sample =
        compute_ms / static_cast<double>(std::max<int64_t>(overhead.median.batch, 1));
    overhead.break_even_batch = overhead.median.communication_ms / ((ranks - 1) * ms_per_sample);
  }
  return overhead;
}

std::string to_text(const CommunicationOverhead& overhead) {
  const auto& median = overhead.median;
  const double total_ms = median.total_ms();
  std::string text = fmt::format("{} ranks, {} samples each, median of {} steps\n", overhead.world_size,
                                 median.batch, overhead.steps);
  for (const auto& [name, part_ms] :
       {std::pair("forward", median.forward_ms), std::pair("backward", median.backward_ms),
        std::pair("communication", median.communication_ms), std::pair("optimizer", median.optimizer_ms)}) {
    text += fmt::format("  {:<14} {:>9.3f} ms {:>5.1f}%\n", name, part_ms,
                        total_ms > 0 ? 100 * part_ms / total_ms : 0);
  }
  text += fmt::format("  {:<14} {:>9.3f} ms\n", "step", total_ms);
  const Bottleneck bottleneck = find_bottleneck(median);
  text +=
      fmt::format("bound by {} ({:.0f}%): {}\n", bottleneck.name, 100 * bottleneck.share, bottleneck.hint);
  if (overhead.world_size == 1) return text + "one rank: there is nothing to compare\n";
  text += fmt::format(
      "is it worth it here? {}: about {:.2f} times the samples a second of one rank at this pace; break-even "
      "at "
      "{:.1f} samples per rank\n",
      overhead.is_worth_it() ? "yes" : "no", overhead.estimated_speedup, overhead.break_even_batch);
  return text;
}

std::vector<ScalingRow> analyze_scaling_efficiency(Communicator& comm, int64_t batch_per_rank,
                                                   const std::function<double(DataParallelComms&)>& measure) {
  std::vector<ScalingRow> rows;
  for (const int size : world_sizes(comm.world_size())) {
    std::vector<double> step_ms = {0};
    if (auto part = comm.split(comm.rank() < size ? 0 : -1)) {
      DataParallelComms comms(*part);
      step_ms[0] = measure(comms);
    }
    comm.all_reduce(step_ms, ReduceOp::kMax);
    ScalingRow row = {.world_size = size, .step_ms = step_ms[0]};
    row.samples_per_second =
        step_ms[0] > 0 ? static_cast<double>(size * batch_per_rank) / (step_ms[0] / 1e3) : 0;
    rows.push_back(row);
    if (rows.front().samples_per_second > 0) {
      rows.back().efficiency = row.samples_per_second / (size * rows.front().samples_per_second);
    }
  }
  return rows;
}

std::string to_text(const std::vector<ScalingRow>& rows) {
  std::string text =
      fmt::format("{:>6} {:>10} {:>14} {:>11}\n", "ranks", "step ms", "samples/s", "efficiency");
  for (const auto& row : rows) {
    text += fmt::format("{:>6} {:>10.3f} {:>14.0f} {:>10.0f}%\n", row.world_size, row.step_ms,
                        row.samples_per_second, 100 * row.efficiency);
  }
  return text;
}

Bottleneck find_bottleneck(const StepTiming& timing) {
  const double total_ms = timing.total_ms();
  const double compute_ms = timing.forward_ms + timing.backward_ms;
  const auto share_of = [&](double part_ms) { return total_ms > 0 ? part_ms / total_ms : 0; };
  if (timing.communication_ms >= compute_ms && timing.communication_ms >= timing.optimizer_ms) {
    return {"communication", share_of(timing.communication_ms),
            "raise the batch, accumulate under no_sync(), or use a faster link"};
  }
  if (timing.optimizer_ms > compute_ms) {
    return {"memory", share_of(timing.optimizer_ms),
            "use a fused optimizer, raise the batch, or shard the optimizer"};
  }
  return {"computation", share_of(compute_ms), "more ranks will help"};
}

}  // namespace lockstep
