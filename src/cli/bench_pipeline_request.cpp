#include "cli/bench_pipeline_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/size.h"
#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::cli {

plan::PipelinePlan PipelineBench::plan_of(const PipelineRow& row) const {
  return plan::make_pipeline_plan(row.schedule, {.ranks = static_cast<int>(stages),
                                                 .microbatches = static_cast<int>(microbatches),
                                                 .chunks = static_cast<int>(row.chunks)});
}

std::vector<PipelineRow> parse_pipeline_rows(const std::string& schedules, const PipelineOptions& shape) {
  std::vector<plan::Schedule> runnable = plan::schedules();
  std::erase_if(runnable, [](const plan::Schedule& schedule) { return schedule.splits_backward; });
  const auto chosen = parse_schedules(schedules, runnable);
  std::vector<PipelineRow> rows;
  for (const auto& schedule : chosen) {
    if (schedule.splits_backward) {
      throw UsageError(fmt::format(
          "--schedules {}: splits backward in two, which can be simulated but not run yet; hint: lockstep "
          "simulate pipeline --schedule {}",
          schedule.name, schedule.name));
    }
    const plan::PipelineShape wanted = shape.shape_of(schedule, chosen);
    if (const std::string problem = plan::why_not(schedule, wanted); !problem.empty())
      throw UsageError(problem);
    rows.push_back({.schedule = std::string(schedule.name), .chunks = wanted.chunks});
  }
  return rows;
}

std::vector<double> parse_sleep(const std::string& text) {
  if (text.empty()) return {};
  std::vector<double> times;
  for (const auto& part : parts_of(text)) {
    double value = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    const bool whole = error == std::errc() && end == part.data() + part.size();
    times.push_back(whole && value >= 0 && value <= 10'000 ? value : -1);
  }
  if (times.size() != 3 || std::count(times.begin(), times.end(), -1.0) > 0) {
    throw UsageError(
        fmt::format("--sleep '{}': not three times; hint: milliseconds of F, I and W of a rank, each from 0 "
                    "to 10000, such as 4,4,4",
                    text));
  }
  return times;
}

void require_possible(const PipelineBench& bench, size_t peers) {
  const MlpSizes& model = bench.model;
  for (const auto& row : bench.rows) {
    if (bench.sleeps() || row.chunks * bench.stages <= model.depth) continue;
    throw UsageError(fmt::format("--stages {}: {} stages of {} have no layer each; hint: {} has {}",
                                 bench.stages, row.chunks * bench.stages, row.schedule, model.name(),
                                 model.depth));
  }
  if (bench.microbatches > model.batch) {
    throw UsageError(fmt::format("--microbatches {}: a batch of {} has no sample for each; hint: --batch {}",
                                 bench.microbatches, model.batch, bench.microbatches));
  }
  const auto available = static_cast<double>(launch::memory().available_bytes);
  // Weights and gradients; what forward keeps of each layer; input and target on every rank.
  const double numbers =
      static_cast<double>(model.parameter_count()) * 2 +
      static_cast<double>(model.batch * model.dim) * static_cast<double>(model.depth * 3 + bench.stages * 2);
  const double needed = numbers * sizeof(float) * static_cast<double>(bench.rows.size() + peers);
  if (bench.sleeps() || needed <= available) return;
  throw UsageError(
      fmt::format("--model {} with batches of {}: {} schedules need about {}, and {} of memory are free; "
                  "hint: a narrower model, or fewer schedules",
                  model.name(), model.batch, bench.rows.size() + peers,
                  bytes_text(static_cast<int64_t>(needed)), bytes_text(static_cast<int64_t>(available))));
}

}  // namespace lockstep::cli
