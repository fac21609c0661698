#include "train/optim/param_state.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <unordered_set>

namespace lockstep::train::optim {

std::string text_of_address(const void* address) {
  return fmt::format("{}", address);
}

StandIns::StandIns(std::vector<torch::optim::OptimizerParamGroup>& groups) : groups_(groups) {
  std::unordered_set<const void*> known;
  for (auto& group : groups_) {
    given_.push_back(group.params());
    for (auto& parameter : group.params()) {
      if (known.insert(parameter.unsafeGetTensorImpl()).second) continue;
      parameter = at::empty({0});
      tensors_.push_back(parameter);
    }
  }
}

StandIns::~StandIns() {
  for (size_t group = 0; group < groups_.size(); ++group) groups_[group].params().swap(given_[group]);
}

}  // namespace lockstep::train::optim
