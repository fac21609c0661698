#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "lockstep/comms/shared_memory.h"
#include "lockstep/plan/pipeline_text.h"
#include "lockstep/trace/session.h"
#include "parallel/pipeline_contract_support.h"
#include "parallel/pipeline_models.h"

namespace lockstep::test {

namespace {

/// The most activations that rank r of p keeps of m micro-batches, as the literature has it; interleaved: of
/// 2p.
double peak_of(const Way& way, int p, int r, int m) {
  const std::string_view schedule = way.schedule;
  if (schedule == "naive") return 1;
  if (schedule == "gpipe") return m;
  if (schedule == "1f1b") return std::min(m, p - r);
  return static_cast<double>((way.chunks - 1) * p + 2 * (p - 1 - r) + 1) / way.chunks;
}

std::vector<std::string> computation_of(const plan::PipelinePlan& plan, int rank) {
  std::vector<std::string> names;
  for (const auto& action : plan.actions[static_cast<size_t>(rank)]) {
    if (action.is_compute()) names.push_back(plan::to_string(action));
  }
  return names;
}

/// The computation that a trace saw while `act` ran.
std::vector<std::string> traced(const std::function<void()>& act) {
  trace::start();
  act();
  std::vector<std::string> names;
  for (const auto& span : trace::stop().spans) {
    if (span.stream == trace::Stream::kCompute) names.push_back(span.name);
  }
  return names;
}

/// A span for each action, one after the other.
bool are_in_order(const std::vector<plan::ActionSpan>& spans) {
  double now = 0;
  for (const auto& span : spans) {
    if (span.start < now || span.end < span.start) return false;
    now = span.end;
  }
  return true;
}

void check_way(Communicator& comm, const Way& way, int microbatches, Problems& problems) {
  const std::string what = describe(way, microbatches);
  const int rank = comm.rank();
  const auto x = random(1, {2 * microbatches, kSmallDim});
  const auto chunks = chunks_of(mlp(kSmallDim, 5), comm, way.chunks);
  Pipeline pipeline(chunks, comm, mean_squared_error,
                    {.schedule = way.schedule, .microbatches = microbatches});
  const auto& plan = pipeline.plan();
  const auto forwards = plan::forward_only(plan);

  require(problems, traced([&] { pipeline.evaluate(x, x); }) == computation_of(forwards, rank),
          what + ": an evaluation does not run the plan's forwards alone");
  require(problems, pipeline.report().actions.empty(), what + ": an evaluation has written a step's report");
  for (const auto& [name, parameter] : parameters_of(chunks)) {
    require(problems, !parameter.grad().defined(), what + ": an evaluation gave a gradient to " + name);
  }

  const double peak = peak_of(way, comm.world_size(), rank, microbatches);
  for (int step = 0; step < 2; ++step) {  // the first finds out the shapes
    require(problems, traced([&] { pipeline.step(x, x); }) == computation_of(plan, rank),
            what + ": what ran is not what the plan says");
    const PipelineReport& report = pipeline.report();
    require(problems,
            report.actions.size() == plan.actions[static_cast<size_t>(rank)].size() &&
                are_in_order(report.actions) && report.seconds >= report.actions.back().end,
            what + ": the report does not have a span for each action");
    require(problems, report.peak_activations == peak,
            fmt::format("{}: {} activations at once, expected {}", what, report.peak_activations, peak));
  }
}

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

std::vector<std::string> check_pipeline_run(Communicator& comm) {
  Problems problems;
  for (const Way& way : kWays) {
    if (way.chunks == 1) check_way(comm, way, 1, problems);
    check_way(comm, way, 2 * comm.world_size(), problems);
  }
  return problems;
}

std::vector<std::string> check_pipeline_memory(Communicator& comm) {
  Problems problems;
  // One activation that stayed would be 32 KiB, those between two stages 12 MiB after all steps.
  constexpr int64_t kWidth = 64, kBatch = 512;
  constexpr int kMicrobatches = 4, kWarmUp = 20, kSteps = 100;
  const auto chunks = chunks_of(mlp(kWidth, 4), comm);
  Pipeline pipeline(chunks, comm, mean_squared_error, {.schedule = "1f1b", .microbatches = kMicrobatches});
  const auto x = random(1, {kBatch, kWidth});
  for (int step = 0; step < kWarmUp; ++step) pipeline.step(x, x);
  const auto early = shared_memory_use();
  const auto early_resident = resident_bytes();
  for (int step = 0; step < kSteps; ++step) pipeline.step(x, x);
  const auto late = shared_memory_use();
  const auto grown = resident_bytes() - early_resident;
  require(problems, comm.engine() != "shm" || early.used_bytes > 0, "tensors are not in shared memory");
  require(problems, late.used_bytes == early.used_bytes,
          fmt::format("shared memory in use grew from {} to {} bytes", early.used_bytes, late.used_bytes));
  // How many messages are on their way at once is a matter of luck: not to the byte.
  require(problems, late.held_bytes < early.held_bytes + (4 << 20),
          fmt::format("shared memory grew from {} to {} bytes", early.held_bytes, late.held_bytes));
  require(problems, grown < (4 << 20), fmt::format("the process grew by {} bytes", grown));
  return problems;
}

}  // namespace lockstep::test
