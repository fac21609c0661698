#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/mlp_sizes.h"
#include "cli/pipeline_options.h"

namespace lockstep::cli {

/// A schedule that is measured.
struct PipelineRow {
  std::string schedule;
  int64_t chunks = 1;
};

/// What the ranks of `lockstep bench pipeline` train; they get it as a file. Weights, inputs and targets are
/// functions of it alone.
struct PipelineBench {
  int64_t stages = 2;
  int64_t microbatches = 8;
  std::string engine = "shm";  ///< Of Lockstep; peers have their own.
  std::vector<PipelineRow> rows = {};
  MlpSizes model = {};                ///< Its batch is that of the whole pipeline.
  std::vector<double> sleep_ms = {};  ///< F, I, W of a rank that sleeps; none: the model computes.

  bool sleeps() const { return !sleep_ms.empty(); }
  plan::PipelinePlan plan_of(const PipelineRow& row) const;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PipelineRow, schedule, chunks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PipelineBench, stages, microbatches, engine, rows, model, sleep_ms)

/// The schedules as typed, each with its chunks. Throws UsageError for one that does not exist, that this
/// shape does not allow, or that cannot be run.
std::vector<PipelineRow> parse_pipeline_rows(const std::string& schedules, const PipelineOptions& shape);

/// `4,4,4`: milliseconds. Throws UsageError.
std::vector<double> parse_sleep(const std::string& text);

/// Throws UsageError if there are more stages than layers, more micro-batches than samples, or more numbers
/// than this machine's free memory holds on all ranks of all systems.
void require_possible(const PipelineBench& bench, size_t peers);

/// Files that Lockstep's ranks write and a peer reads: float32, little-endian, one number behind the other.
inline constexpr const char* kPipelineWeightsFile = "weights.f32";  ///< All layers' parameters, in order.
inline constexpr const char* kPipelineInputFile = "input.f32";      ///< [batch, dim]
inline constexpr const char* kPipelineTargetFile = "target.f32";    ///< The same.

}  // namespace lockstep::cli
