// Lesson 19: GPipe. Every stage runs all micro-batches forward, then all back.
#include <span>
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace my_work {

using lockstep::plan::Action;
using lockstep::plan::ActionKind;

std::vector<std::span<const float>> split_batch(std::span<const float> batch, int microbatches) {
  const auto M = static_cast<std::size_t>(microbatches);
  std::vector<std::span<const float>> parts;
  std::size_t begin = 0;
  for (std::size_t m = 0; m < M; ++m) {
    const std::size_t size =
        batch.size() / M + (m < batch.size() % M ? 1 : 0);  // the first have the remainder
    parts.push_back(batch.subspan(begin, size));
    begin += size;
  }
  return parts;
}

std::vector<double> loss_weights(const std::vector<std::span<const float>>& microbatches) {
  std::size_t samples = 0;
  for (const auto& part : microbatches) samples += part.size();
  std::vector<double> weights;
  for (const auto& part : microbatches)
    weights.push_back(static_cast<double>(part.size()) / static_cast<double>(samples));
  return weights;
}

std::vector<Action> gpipe(int stage, int /*stages*/, int microbatches) {
  std::vector<Action> order;
  for (int m = 0; m < microbatches; ++m) order.push_back({ActionKind::kForward, stage, m});
  for (int m = 0; m < microbatches; ++m) order.push_back({ActionKind::kBackward, stage, m});
  return order;
}

}  // namespace my_work
