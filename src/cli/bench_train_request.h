#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "train/run/run_folder.h"

namespace lockstep::cli {

/// What `lockstep bench train` was asked for.
struct TrainBench {
  int64_t world = 2;
  int64_t batch = 64;             ///< Sequences of a step, of all ranks together.
  std::string config_file;        ///< "": the built-in config.
  int64_t checkpoint_every = 50;  ///< Steps; 0: nothing is saved.
  bool with_pytorch = false;
};

/// Makes the folder of a run, as `lockstep train` would: of the model that all systems train. Throws
/// UsageError for what cannot be trained, for dropout beside a peer, and if this machine's free memory does
/// not hold the model on all ranks of all systems.
train::Run prepare_train_bench(const TrainBench& bench, const std::filesystem::path& folder);

/// Weights and biases; the head's are the embedding's.
int64_t parameter_count(const TransformerConfig& config);

/// Batches that every system has in memory before anything is timed: step k trains on batch k modulo this.
constexpr int64_t kTrainBatches = 50;

/// In the benchmark's folder: the run's own, and files that Lockstep's ranks write and a peer reads, of
/// float32, little-endian, one number behind the other.
inline constexpr const char* kTrainRunFolder = "run";
inline constexpr const char* kTrainWeightsFile = "weights.f32";  ///< In the order that rank 0 tells.
/// Tokens, which are whole numbers that float32 holds exactly: [kTrainBatches, batch / world, T].
std::string train_inputs_file(int rank);
std::string train_targets_file(int rank);

}  // namespace lockstep::cli
