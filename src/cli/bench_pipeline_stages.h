#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <vector>

#include "cli/bench_pipeline_request.h"
#include "lockstep/parallel/ddp/any_model.h"

namespace lockstep::cli {

/// The stages of a rank for a row of the benchmark: layers of the model, which start from the same weights
/// for all rows; or stages that sleep for the rank's time of F, and for I and W together, each of V chunks
/// for 1/V of it.
std::vector<AnyModel> make_pipeline_stages(const PipelineBench& bench, const PipelineRow& row, int rank);

/// The batch that every step trains on.
struct PipelineBatch {
  at::Tensor input;
  at::Tensor target;
};
PipelineBatch make_pipeline_batch(const PipelineBench& bench);

/// For a peer: all weights, and the batch.
void write_pipeline_files(const std::filesystem::path& folder, const PipelineBench& bench);

}  // namespace lockstep::cli
