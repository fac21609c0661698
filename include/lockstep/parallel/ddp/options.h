#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// What becomes of ranks that give batches of different sizes (the first dimension of the first tensor given
/// to forward). The mean over ranks of their means is then not the mean over all samples.
enum class UnequalBatches : uint8_t {
  kRefuse,  ///< backward() throws on all ranks. Costs nothing.
  /// Every sample weighs the same. Costs a small all-reduce in each forward. The output of one forward must
  /// not be the input of another: its gradient would be weighed twice.
  kGlobalMean,
  kIgnore,  ///< Every rank weighs the same; for inputs whose first dimension is not the batch.
};

struct DdpOptions {
  /// A bucket is closed when it holds at least this much. Raise it where messages are slow to start, lower it
  /// for more overlap.
  double bucket_cap_mib = 25;
  /// The first bucket's, so that communication starts early. Not more than `bucket_cap_mib` is used.
  double first_bucket_cap_mib = 1;
  /// Every forward in training mode gives all ranks rank 0's buffers (BatchNorm's statistics, ...).
  bool broadcast_buffers = true;
  /// Parameters that took no part in a backward on some rank count as a gradient of zero there; those that
  /// took part nowhere keep their gradient. Without it they are an error that names them.
  bool find_unused_parameters = false;
  /// The caller promises that every backward uses the same parameters equally often as the first one did.
  bool static_graph = false;
  /// Whether buckets are reduced by a thread of their own while backward goes on. By default where that
  /// helps: between hosts always, on shared memory if this rank has a core to spare.
  std::optional<bool> overlap = {};
  UnequalBatches unequal_batches = UnequalBatches::kRefuse;
  /// An optimizer that steps a tied parameter twice, as it seems from the first step, is an error. Switch it
  /// off if that parameter has a learning rate of its own.
  bool check_tied_steps = true;
  /// Looks for NaN and Inf in each bucket before it is sent; one is an error that names parameter and rank.
  /// Costs a pass over the gradients.
  bool check_finite = false;
  /// Every so many synchronised steps the ranks compare hashes of their weights; 0: never. A difference is an
  /// error that names the first parameter and the rank.
  int64_t check_weights_every = 0;
};

struct JoinOptions {
  /// Whether a mean is over all ranks, or over those that still have inputs.
  bool divide_by_initial_world_size = true;
  /// All ranks throw as soon as one has no more inputs.
  bool throw_on_early_termination = false;
};

}  // namespace lockstep
