#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "cli/bench_ddp_request.h"
#include "lockstep/train/models/full_mlp.h"

namespace lockstep::cli {

/// What one rank trains on.
struct DdpData {
  at::Tensor inputs;   ///< [batches, batch, dim]
  at::Tensor targets;  ///< The same.
};

/// The model that every system starts from.
FullMLP make_ddp_model(const DdpBench& bench, size_t model);

DdpData make_ddp_data(const DdpBench& bench, size_t model, int rank);

/// All ranks' batches as one: what a single process trains on to do the same.
DdpData make_whole_ddp_data(const DdpBench& bench, size_t model);

/// For systems that are not LibTorch in C++. The weights by rank 0, the batches by every rank.
void write_ddp_files(const std::filesystem::path& folder, size_t model, int rank, const FullMLP& module,
                     const DdpData& data);

}  // namespace lockstep::cli
