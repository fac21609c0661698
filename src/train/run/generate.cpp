#include "train/run/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lockstep/error.h"
#include "train/data/split_mix64.h"

namespace lockstep::train {

namespace {

/// Draws one of the logits' indices.
int32_t draw(const float* logits, int64_t count, const GenerateOptions& options, SplitMix64& random) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  // Ties by index: the same on every platform.
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> weights;
  double total = 0;
  for (const int32_t token : order) {
    weights.push_back(
        std::exp((static_cast<double>(logits[token]) - logits[order.front()]) / options.temperature));
    total += weights.back();
  }
  double left = random.uniform() * total;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

}  // namespace

void generate(torch::nn::Sequential model, const TransformerConfig& config, const Tokenizer& tokenizer,
              const GenerateOptions& options, const std::function<void(const std::string&)>& show) {
  std::vector<int64_t> tokens;
  for (const int32_t token : tokenizer.encode(options.prompt)) tokens.push_back(token);
  if (tokens.empty()) throw UsageError("--prompt is empty; hint: the model goes on behind something");
  const at::NoGradGuard no_grad;
  model->eval();
  SplitMix64 random(options.seed);
  for (int64_t i = 0; i < options.length; ++i) {
    const auto seen = std::min(static_cast<int64_t>(tokens.size()), config.max_position_embeddings);
    const auto input = at::from_blob(tokens.data() + tokens.size() - seen, {1, seen}, at::kLong);
    const auto logits = model->forward(input).select(1, seen - 1).contiguous();
    const int32_t next = draw(logits.data_ptr<float>(), logits.size(-1), options, random);
    tokens.push_back(next);
    show(tokenizer.text_of(next));
  }
}

}  // namespace lockstep::train
