#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/mlp_sizes.h"

namespace lockstep::cli {

/// What the ranks of every system train; they get it as a file. Weights, inputs and targets are functions of
/// it alone.
struct DdpBench {
  int64_t world = 2;
  std::string engine = "shm";      ///< Of Lockstep; peers have their own.
  std::string optimizer = "adam";  ///< adam, sgd (momentum 0.9) or torch-adam.
  double lr = 1e-5;
  double bucket_cap_mib = 25;    ///< Of Lockstep and of PyTorch.
  std::string overlap = "auto";  ///< Of Lockstep.
  int64_t batches = 1;           ///< Step k trains on batch k modulo this.
  std::vector<MlpSizes> models = {};
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DdpBench, world, engine, optimizer, lr, bucket_cap_mib, overlap, batches,
                                   models)

/// The rows that are measured beside Lockstep's, as `--peers pytorch,libtorch` asks for them: pytorch-ddp,
/// pytorch-ddp-views, libtorch. Throws UsageError.
std::vector<std::string> parse_ddp_peers(const std::string& list);

/// Throws UsageError for models that this machine's free memory does not hold on all ranks of all systems.
void require_ddp_memory(const DdpBench& bench, size_t systems);

/// Files that Lockstep's ranks write and others read: float32, little-endian, one number behind the other.
std::string weights_file(size_t model);            ///< All parameters, in the order of the layers.
std::string inputs_file(size_t model, int rank);   ///< [batches, batch, dim]
std::string targets_file(size_t model, int rank);  ///< The same.

}  // namespace lockstep::cli
