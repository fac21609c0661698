#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// How a DistributedSampler deals samples out.
struct DistributedSamplerOptions {
  int rank = 0;            ///< Of this process, from 0.
  int world_size = 1;      ///< How many ranks share the data set.
  bool shuffle = true;     ///< Another order in every epoch; else always 0, 1, 2, ...
  bool drop_last = false;  ///< Leave out what does not divide by world_size; else repeat from the beginning.
  uint64_t seed = 0;       ///< Of the order; the same on all ranks.
};

/// Deals the indices of a data set out to ranks, for torch::data::make_data_loader.
///
/// In each epoch all ranks get equally many: size / world_size rounded down with `drop_last`, else rounded
/// up. Together they get every index once, apart from at most world_size - 1 left out or given twice. Entry i
/// of the epoch's order goes to rank i % world_size, so a step's global batch is a run of that order. The
/// order is a function of (size, seed, epoch) alone: not of torch's generators, nor of the platform.
///
/// A copy is another handle to the same sampler: set_epoch() on the one kept reaches the one that a data
/// loader took. Calls may come from any thread.
///
///     const auto size = dataset.size().value();
///     DistributedSampler sampler(size, {.rank = comm.rank(), .world_size = comm.world_size()});
///     auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 64);
///     for (int epoch = 0; epoch < 10; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : *loader) ...
///     }
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// std::optional, or c10's in LibTorch 1.13.
  template <typename T>
  using Optional = torch::optional<T>;

  /// Throws UsageError, naming the value, for a rank that is not in the world, and if a rank would get
  /// nothing: an empty data set, or with drop_last one smaller than the world.
  explicit DistributedSampler(size_t size, const DistributedSamplerOptions& options = {});

  /// The order of the next epoch, from its beginning, unless it is the epoch already chosen: then nothing
  /// happens, and a place that resume_at() or load() set stays. Until another is chosen, each pass over the
  /// data has the same order.
  void set_epoch(size_t epoch);
  size_t epoch() const;

  /// How many samples this rank has been given in this epoch. Loaders ask ahead: with workers this is more
  /// than the training loop has seen.
  size_t position() const;

  /// Goes on behind the first `samples` of this rank's part of the epoch, now and through the next reset(),
  /// by which data loaders begin. Throws UsageError if there are not so many.
  void resume_at(size_t samples);

  /// This rank's samples in an epoch, the same number on all ranks.
  size_t samples_per_rank() const;

  /// To the beginning of the epoch, or the place that was set since the last reset; called by data loaders.
  void reset(Optional<size_t> new_size = {}) override;

  /// The next indices of this rank, `batch_size` of them or what is left; none at the end.
  Optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Epoch and place, and what they are a place of.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Goes on where save() was called, through the next reset() too. The archive may be another rank's. Throws
  /// UsageError, naming both values, if size, world size, seed, shuffle or drop_last are others.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
