#include "lockstep/train/optim/repeated_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <unordered_map>
#include <utility>

#include "lockstep/error.h"

namespace lockstep {

void refuse_repeated_parameters(const torch::optim::Optimizer& optimizer) {
  std::unordered_map<const void*, std::pair<size_t, size_t>> places;
  const auto& groups = optimizer.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto& parameters = groups[group].params();
    for (size_t index = 0; index < parameters.size(); ++index) {
      const auto [place, is_new] = places.try_emplace(parameters[index].unsafeGetTensorImpl(), group, index);
      if (is_new) continue;
      throw UsageError(fmt::format(
          "optimizer: parameter {} of group {} is parameter {} of group {} again, of shape [{}]; hint: every "
          "step would change it twice; give a tied weight once, or use lockstep's fused optimizers",
          index, group, place->second.second, place->second.first,
          fmt::join(parameters[index].sizes(), ", ")));
    }
  }
}

}  // namespace lockstep
