#include "cli/bench_ddp_data.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>

#include "cli/bench_constants.h"
#include "cli/bench_numbers.h"
#include "parallel/seed.h"

namespace lockstep::cli {

namespace {

/// The same for a model wherever it stands in the list.
at::Tensor draw(const DdpBench& bench, size_t model, int rank, uint64_t which) {
  const auto& sizes = bench.models[model];
  const uint64_t seed = parallel::derive_seed(kBenchSeed, parallel::Stream::kBatches,
                                              static_cast<uint64_t>(sizes.dim * 1000 + sizes.depth));
  auto generator = at::detail::createCPUGenerator(
      parallel::derive_seed(seed, parallel::Stream::kBatches, static_cast<uint64_t>(rank) * 2 + which));
  return at::randn({bench.batches, sizes.batch, sizes.dim}, generator);
}

}  // namespace

FullMLP make_ddp_model(const DdpBench& bench, size_t model) {
  return FullMLP(bench.models[model].dim, bench.models[model].depth, kBenchSeed);
}

DdpData make_ddp_data(const DdpBench& bench, size_t model, int rank) {
  return {.inputs = draw(bench, model, rank, 0), .targets = draw(bench, model, rank, 1)};
}

DdpData make_whole_ddp_data(const DdpBench& bench, size_t model) {
  std::vector<at::Tensor> inputs, targets;
  for (int rank = 0; rank < bench.world; ++rank) {
    const DdpData data = make_ddp_data(bench, model, rank);
    inputs.push_back(data.inputs);
    targets.push_back(data.targets);
  }
  return {.inputs = at::cat(inputs, 1), .targets = at::cat(targets, 1)};
}

void write_ddp_files(const std::filesystem::path& folder, size_t model, int rank, const FullMLP& module,
                     const DdpData& data) {
  if (rank == 0) write_numbers(folder / weights_file(model), module->parameters());
  write_numbers(folder / inputs_file(model, rank), {data.inputs});
  write_numbers(folder / targets_file(model, rank), {data.targets});
}

}  // namespace lockstep::cli
