#include "parallel/ddp/tied_step_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "lockstep/error.h"

namespace lockstep::ddp {

namespace {

constexpr double kTolerance = 0.05;  // weight decay and rounding change a step a little

bool is_tied(const NamedParameter& parameter) {
  return !parameter.other_names.empty();
}

/// The first parameter that is tied and whose measure is as many times that of the others as the model holds
/// it; none if the others differ among themselves.
const NamedParameter* find_repeated(const std::vector<NamedParameter>& parameters,
                                    const std::function<double(size_t)>& measure_of) {
  const auto close = [](double a, double b) { return std::abs(a - b) <= kTolerance * std::abs(b); };
  std::optional<double> usual;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_tied(parameters[i]) || !parameters[i].tensor.requires_grad()) continue;
    const double measure = measure_of(i);
    if (measure == 0 || (usual && !close(measure, *usual))) return nullptr;
    usual = measure;
  }
  for (size_t i = 0; usual && i < parameters.size(); ++i) {
    const auto held = static_cast<double>(parameters[i].other_names.size() + 1);
    if (is_tied(parameters[i]) && close(measure_of(i), held * *usual)) return &parameters[i];
  }
  return nullptr;
}

}  // namespace

double TiedStepCheck::element_of(const at::Tensor& tensor, int64_t element) {
  return tensor.detach().reshape({-1})[element].item<double>();
}

void TiedStepCheck::remember(const std::vector<NamedParameter>& parameters) {
  if (is_done_ || std::none_of(parameters.begin(), parameters.end(), is_tied)) return;
  seen_.clear();
  for (const auto& parameter : parameters) {
    Seen seen = {.version = parameter.tensor._version()};
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && gradient.numel() > 0) {
      seen.element = gradient.abs().reshape({-1}).argmax().item<int64_t>();
      seen.value = element_of(parameter.tensor, seen.element);
      seen.slope = element_of(gradient, seen.element);
    }
    seen_.push_back(seen);
  }
}

void TiedStepCheck::check(const std::vector<NamedParameter>& parameters) {
  if (seen_.empty()) return;
  const auto changes = [&](size_t i) {
    return static_cast<double>(parameters[i].tensor._version() - seen_[i].version);
  };
  const auto distance = [&](size_t i) {
    if (seen_[i].slope == 0) return 0.0;
    return (element_of(parameters[i].tensor, seen_[i].element) - seen_[i].value) / seen_[i].slope;
  };
  const auto length = [&](size_t i) { return std::abs(distance(i) * seen_[i].slope); };
  bool is_told = false;  // how often they changed
  for (size_t i = 0; i < parameters.size(); ++i) {
    is_done_ = is_done_ || distance(i) != 0;
    is_told = is_told || changes(i) != 0;
  }
  // A step is along the gradient (SGD), or of one length for all (Adam's first).
  const NamedParameter* repeated = find_repeated(parameters, distance);
  if (repeated == nullptr) repeated = find_repeated(parameters, length);
  if (is_told && repeated != find_repeated(parameters, changes)) repeated = nullptr;
  seen_.clear();
  if (repeated == nullptr) return;
  throw UsageError(fmt::format(
      "ddp: parameter '{}', which is also '{}', was stepped {} times by one optimizer step; hint: give the "
      "optimizer ddp.parameters(), which has every parameter once; if it is not so, set "
      "DdpOptions::check_tied_steps "
      "to false",
      repeated->name, fmt::join(repeated->other_names, "', '"), repeated->other_names.size() + 1));
}

}  // namespace lockstep::ddp
