#include "lockstep/train/data/distributed_sampler.h"

#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>

#include "lockstep/error.h"
#include "parallel/seed.h"
#include "train/data/permutation.h"

namespace lockstep {

namespace {

void check(size_t size, const DistributedSamplerOptions& options) {
  if (options.world_size < 1) {
    throw UsageError(
        fmt::format("DistributedSampler: world_size is {}; hint: at least 1", options.world_size));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    throw UsageError(fmt::format("DistributedSampler: rank is {} in a world of {}; hint: ranks are 0 to {}",
                                 options.rank, options.world_size, options.world_size - 1));
  }
  if (size == 0) {
    throw UsageError("DistributedSampler: the data set has size 0; hint: no rank would get a sample");
  }
  if (options.drop_last && size < static_cast<size_t>(options.world_size)) {
    throw UsageError(fmt::format(
        "DistributedSampler: with drop_last, a data set of size {} leaves nothing to {} ranks; hint: leave "
        "drop_last out",
        size, options.world_size));
  }
}

/// This rank's part of the order of an epoch.
std::vector<size_t> deal(size_t size, const DistributedSamplerOptions& options, size_t epoch) {
  const auto world = static_cast<size_t>(options.world_size);
  const size_t count = options.drop_last ? size / world : size / world + (size % world != 0 ? 1 : 0);
  std::vector<size_t> order;
  if (options.shuffle) {
    order = train::permutation(size, parallel::derive_seed(options.seed, parallel::Stream::kOrder, epoch));
  }
  std::vector<size_t> dealt(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = (i * world + static_cast<size_t>(options.rank)) % size;
    dealt[i] = options.shuffle ? order[entry] : entry;
  }
  return dealt;
}

void write(torch::serialize::OutputArchive& archive, const std::string& name, uint64_t value) {
  archive.write(name, c10::IValue(static_cast<int64_t>(value)));
}

uint64_t read(torch::serialize::InputArchive& archive, const std::string& name) {
  c10::IValue value;
  if (!archive.try_read(name, value) || !value.isInt()) {
    throw UsageError(fmt::format(
        "DistributedSampler: the archive has no number \"{}\"; hint: it was not written by one", name));
  }
  return static_cast<uint64_t>(value.toInt());
}

}  // namespace

struct DistributedSampler::State {
  std::mutex mutex;
  size_t size = 0;
  DistributedSamplerOptions options;
  size_t epoch = 0;
  size_t position = 0;
  bool keeps_position = false;  ///< Through the next reset.
  std::vector<size_t> dealt;

  void move_to(size_t samples) {
    position = samples;
    keeps_position = true;
  }

  /// What a saved place is a place of.
  std::vector<std::pair<std::string, uint64_t>> identity() const {
    return {{"size", size},
            {"world_size", static_cast<uint64_t>(options.world_size)},
            {"seed", options.seed},
            {"shuffle", options.shuffle ? 1 : 0},
            {"drop_last", options.drop_last ? 1 : 0}};
  }
};

DistributedSampler::DistributedSampler(size_t size, const DistributedSamplerOptions& options)
    : state_(std::make_shared<State>()) {
  check(size, options);
  state_->size = size;
  state_->options = options;
  state_->dealt = deal(size, options, 0);
}

void DistributedSampler::set_epoch(size_t epoch) {
  const std::lock_guard lock(state_->mutex);
  if (epoch == state_->epoch) return;
  state_->dealt = deal(state_->size, state_->options, epoch);
  state_->epoch = epoch;
  state_->position = 0;
  state_->keeps_position = false;
}

size_t DistributedSampler::epoch() const {
  const std::lock_guard lock(state_->mutex);
  return state_->epoch;
}

size_t DistributedSampler::position() const {
  const std::lock_guard lock(state_->mutex);
  return state_->position;
}

void DistributedSampler::resume_at(size_t samples) {
  const std::lock_guard lock(state_->mutex);
  if (samples > state_->dealt.size()) {
    throw UsageError(
        fmt::format("DistributedSampler: cannot go on behind {} samples; hint: rank {} of {} has {}", samples,
                    state_->options.rank, state_->options.world_size, state_->dealt.size()));
  }
  state_->move_to(samples);
}

size_t DistributedSampler::samples_per_rank() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dealt.size();
}

void DistributedSampler::reset(Optional<size_t> new_size) {
  const std::lock_guard lock(state_->mutex);
  if (new_size.has_value() && *new_size != state_->size) {
    check(*new_size, state_->options);
    state_->dealt = deal(*new_size, state_->options, state_->epoch);
    state_->size = *new_size;
    state_->keeps_position = false;
  }
  if (!state_->keeps_position) state_->position = 0;
  state_->keeps_position = false;
}

DistributedSampler::Optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  if (batch_size == 0) throw UsageError("DistributedSampler: batch_size is 0; hint: at least 1");
  const std::lock_guard lock(state_->mutex);
  const size_t left = state_->dealt.size() - state_->position;
  if (left == 0) return {};
  const auto begin = state_->dealt.begin() + static_cast<std::ptrdiff_t>(state_->position);
  const size_t count = std::min(batch_size, left);
  state_->position += count;
  return std::vector<size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, value] : state_->identity()) write(archive, name, value);
  write(archive, "epoch", state_->epoch);
  write(archive, "position", state_->position);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [name, own] : state_->identity()) {
    const uint64_t saved = read(archive, name);
    if (saved == own) continue;
    throw UsageError(fmt::format(
        "DistributedSampler: the archive has {} {}, this sampler {}; hint: a place in one order means "
        "nothing in another; choose a new one by set_epoch() and resume_at()",
        name, saved, own));
  }
  const uint64_t epoch = read(archive, "epoch");
  const uint64_t position = read(archive, "position");
  auto dealt = deal(state_->size, state_->options, epoch);
  if (position > dealt.size()) {
    throw UsageError(
        fmt::format("DistributedSampler: the archive has position {}; hint: a rank has {} samples", position,
                    dealt.size()));
  }
  state_->dealt = std::move(dealt);
  state_->epoch = epoch;
  state_->move_to(position);
}

}  // namespace lockstep
