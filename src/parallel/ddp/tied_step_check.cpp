#include "parallel/ddp/tied_step_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::ddp {

void TiedStepCheck::remember(const std::vector<NamedParameter>& parameters) {
  const bool has_ties = std::any_of(parameters.begin(), parameters.end(),
                                    [](const NamedParameter& each) { return !each.other_names.empty(); });
  if (!has_ties || steps_ == kSteps) return;
  versions_.clear();
  for (const auto& each : parameters) versions_.push_back(each.tensor._version());
}

void TiedStepCheck::check(const std::vector<NamedParameter>& parameters) {
  if (versions_.empty()) return;
  // How often those change that the model holds once: all alike, or nothing can be told.
  int64_t usual = 0;
  bool alike = true;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t changes = parameters[i].tensor._version() - versions_[i];
    if (!parameters[i].other_names.empty() || !parameters[i].tensor.requires_grad()) continue;
    alike = alike && (usual == 0 || changes == usual);
    usual = changes;
  }
  if (usual > 0) ++steps_;
  for (size_t i = 0; alike && usual > 0 && i < parameters.size(); ++i) {
    const int64_t changes = parameters[i].tensor._version() - versions_[i];
    const auto held = static_cast<int64_t>(parameters[i].other_names.size() + 1);
    if (held == 1 || changes != usual * held) continue;
    throw UsageError(fmt::format(
        "ddp: parameter '{}', which is also '{}', was stepped {} times by one optimizer step; hint: give the "
        "optimizer ddp.parameters(), which has every parameter once",
        parameters[i].name, fmt::join(parameters[i].other_names, "', '"), held));
  }
  versions_.clear();
}

}  // namespace lockstep::ddp
