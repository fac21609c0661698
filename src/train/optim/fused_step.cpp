#include "train/optim/fused_step.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "lockstep/error.h"

namespace lockstep::train::optim {

namespace {

constexpr int64_t kElementsWorthAThread = 32768;

/// A parameter that has a gradient, at its first place.
struct Candidate {
  const at::Tensor* parameter;
  size_t group;
};

std::vector<Candidate> find_candidates(std::string_view name, const ParamGroups& groups) {
  std::vector<Candidate> found;
  std::unordered_set<const void*> known;
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto& parameters = groups[group].params();
    for (size_t index = 0; index < parameters.size(); ++index) {
      const at::Tensor& parameter = parameters[index];
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined() || !known.insert(parameter.unsafeGetTensorImpl()).second) continue;
      if (gradient.layout() != at::kStrided) {
        throw UsageError(fmt::format(
            "{}: the gradient of parameter {} of group {}, of shape [{}], is not dense; hint: give dense "
            "gradients, as an embedding without sparse(true) does",
            name, index, group, fmt::join(parameter.sizes(), ", ")));
      }
      found.push_back({&parameter, group});
    }
  }
  return found;
}

/// Leaves only some parameters in the groups, until destroyed.
class OnlyThese {
 public:
  OnlyThese(ParamGroups& groups, std::vector<std::vector<at::Tensor>> parameters)
      : groups_(groups), others_(std::move(parameters)) {
    swap();
  }
  ~OnlyThese() { swap(); }
  OnlyThese(const OnlyThese&) = delete;
  OnlyThese& operator=(const OnlyThese&) = delete;

 private:
  void swap() {
    for (size_t group = 0; group < groups_.size(); ++group) groups_[group].params().swap(others_[group]);
  }

  ParamGroups& groups_;
  std::vector<std::vector<at::Tensor>> others_;
};

}  // namespace

void apply_updates(const std::vector<Update>& updates) {
  std::vector<int64_t> ends;  // of each update, if all elements stood in a row
  int64_t total = 0;
  for (const auto& update : updates) ends.push_back(total += update.count);
  at::parallel_for(0, total, kElementsWorthAThread, [&](int64_t begin, int64_t end) {
    auto i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    while (begin < end) {
      const int64_t first = ends[i] - updates[i].count;
      const int64_t stop = std::min(end, ends[i]);
      if (begin < stop) updates[i].apply(begin - first, stop - first);
      begin = stop;
      ++i;
    }
  });
}

bool is_flat(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble) &&
         tensor.is_non_overlapping_and_dense() && !tensor.is_neg() && !tensor._is_zerotensor();
}

bool is_laid_out_as(const at::Tensor& tensor, const at::Tensor& model) {
  return is_flat(tensor) && tensor.scalar_type() == model.scalar_type() && tensor.sizes() == model.sizes() &&
         tensor.strides() == model.strides();
}

at::Tensor FusedStep::run(const torch::optim::Optimizer::LossClosure& closure) const {
  at::Tensor loss;
  if (closure != nullptr) {
    const c10::AutoGradMode with_grad(true);
    loss = closure();
  }
  const c10::AutoGradMode without_grad(false);
  const auto candidates = find_candidates(name, groups);
  std::vector<Update> updates;
  std::vector<std::vector<at::Tensor>> others(groups.size());
  bool has_others = false;
  for (const auto& [parameter, group] : candidates) {
    std::optional<Update> own;
    if (is_flat(*parameter) && is_laid_out_as(parameter->grad(), *parameter)) {
      own = update(*parameter, parameter->grad(), groups[group].options());
    }
    if (own) {
      updates.push_back(std::move(*own));
    } else {
      others[group].push_back(*parameter);
      has_others = true;
    }
  }
  apply_updates(updates);
  std::vector<int64_t> versions;
  for (const auto& candidate : candidates) versions.push_back(candidate.parameter->_version());
  if (has_others) {
    const OnlyThese only(groups, std::move(others));
    libtorch_step();
  }
  // Autograd must notice that a weight it saved has changed. Raw stores do not tell it, nor does LibTorch's
  // SGD.
  for (size_t i = 0; i < candidates.size(); ++i) {
    const at::Tensor& parameter = *candidates[i].parameter;
    if (parameter._version() == versions[i]) parameter.unsafeGetTensorImpl()->bump_version();
  }
  return loss;
}

void zero_grad(ParamGroups& groups, bool set_to_none) {
  for (auto& group : groups) {
    for (auto& parameter : group.params()) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      if (set_to_none) {
        gradient.reset();
      } else {
        gradient = gradient.detach();
        gradient.zero_();
      }
    }
  }
}

}  // namespace lockstep::train::optim
