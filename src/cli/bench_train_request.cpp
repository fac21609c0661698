#include "cli/bench_train_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/size.h"
#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

void refuse_dropout(const TrainBench& bench, const TransformerConfig& config) {
  if (!bench.with_pytorch) return;
  for (const auto& [name, value] :
       {std::pair("hidden_dropout_prob", config.hidden_dropout_prob),
        std::pair("attention_probs_dropout_prob", config.attention_probs_dropout_prob)}) {
    if (value == 0) continue;
    throw UsageError(
        fmt::format("--config {}: {} is {}, with which no two systems have the same losses; hint: 0, or "
                    "--peers none",
                    bench.config_file, name, value));
  }
}

void require_memory(const TrainBench& bench, const TransformerConfig& config) {
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  const double wide = real(config.hidden_size), length = real(config.max_position_embeddings);
  // What forward keeps of a token in a block, and behind the last one; then the tokens, in and out.
  const double block =
      12 * wide + 2 * real(config.intermediate_size) + 3 * real(config.num_attention_heads) * length;
  const double token = block * real(config.num_hidden_layers) + 3 * wide + 2 * real(config.vocab_size) +
                       4 * real(kTrainBatches);
  // Weights, gradients, two moments and a bucket.
  const double numbers =
      5 * real(parameter_count(config)) * real(bench.world) + token * length * real(bench.batch);
  const int systems = bench.with_pytorch ? 2 : 1;
  const double needed = std::min(numbers * sizeof(float) * systems, 1e18);  // bytes are told as int64_t
  const auto available = real(static_cast<int64_t>(launch::memory().available_bytes));
  if (needed <= available) return;
  throw UsageError(
      fmt::format("--world {} --batch {}: {} need about {}, and {} of memory are free; hint: a smaller "
                  "--batch, or a smaller model by --config",
                  bench.world, bench.batch, systems == 1 ? "the ranks" : "the ranks of both systems",
                  bytes_text(static_cast<int64_t>(needed)), bytes_text(static_cast<int64_t>(available))));
}

}  // namespace

train::Run prepare_train_bench(const TrainBench& bench, const std::filesystem::path& folder) {
  // Before a tokenizer cuts the vocabulary down: a folder is made by what has been found possible alone.
  const TransformerConfig config =
      bench.config_file.empty() ? TransformerConfig() : read_config(bench.config_file);
  refuse_dropout(bench, config);
  require_memory(bench, config);
  train::RunRequest request = {.folder = folder / kTrainRunFolder, .config_file = bench.config_file};
  request.given.values.batch = bench.batch;
  request.given.values.world_size = bench.world;
  train::RunLock lock;  // nobody else knows the folder
  return prepare_run(request, {}, lock);
}

int64_t parameter_count(const TransformerConfig& config) {
  const int64_t wide = config.hidden_size, middle = config.intermediate_size;
  const int64_t attention = (wide + 1) * 3 * wide + (wide + 1) * wide;
  const int64_t mlp = (wide + 1) * middle + (middle + 1) * wide;
  return (config.vocab_size + config.max_position_embeddings) * wide +
         config.num_hidden_layers * (attention + mlp + 4 * wide) + 2 * wide;
}

std::string train_inputs_file(int rank) {
  return fmt::format("inputs-{}.f32", rank);
}

std::string train_targets_file(int rank) {
  return fmt::format("targets-{}.f32", rank);
}

}  // namespace lockstep::cli
