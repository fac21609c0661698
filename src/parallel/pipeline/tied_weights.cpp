#include "parallel/pipeline/tied_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <set>
#include <sstream>

#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"
#include "parallel/ddp/agreement.h"

namespace lockstep::pipeline {

namespace {

/// Throws on all ranks if one has a problem.
void require_none(Communicator& comm, const std::string& problem) {
  for (const auto& text : ddp::gather_texts(comm, problem)) {
    if (!text.empty()) throw UsageError(text);
  }
}

std::string problem_of(const std::map<std::string, at::Tensor>& mine) {
  for (const auto& [name, tensor] : mine) {
    if (name.find('\n') != std::string::npos) return "a tied weight's name has a line break";
    if (!tensor.defined()) return fmt::format("tied weight '{}': is not defined", name);
  }
  return "";
}

/// The names that any rank has, alike on all.
std::set<std::string> all_names(Communicator& comm, const std::map<std::string, at::Tensor>& mine) {
  require_none(comm, problem_of(mine));
  std::string lines;
  for (const auto& [name, tensor] : mine) lines += name + '\n';
  std::set<std::string> names;
  for (const auto& text : ddp::gather_texts(comm, lines)) {
    std::istringstream stream(text);
    for (std::string name; std::getline(stream, name);) names.insert(name);
  }
  return names;
}

/// What must be alike wherever a weight is.
std::string description_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << ", " << tensor.scalar_type() << (tensor.requires_grad() ? "" : ", frozen");
  return text.str();
}

}  // namespace

TiedWeights::TiedWeights(Communicator& comm, const std::map<std::string, at::Tensor>& mine) {
  for (const auto& name : all_names(comm, mine)) {
    const auto found = mine.find(name);
    auto owners = comm.split(found == mine.end() ? -1 : 0);
    std::string problem;
    if (owners) {
      const auto difference = ddp::first_difference(*owners, {description_of(found->second)});
      if (!difference.empty()) problem = fmt::format("tied weight '{}': {}", name, difference);
    }
    require_none(comm, problem);
    if (!owners) continue;
    const at::Tensor& tensor = found->second;
    const at::NoGradGuard no_grad;
    at::Tensor start = tensor.detach().contiguous();
    owners->broadcast(start);
    tensor.detach().copy_(start);
    if (tensor.requires_grad()) weights_.push_back({tensor, *owners});
  }
}

void TiedWeights::open_step() {
  for (auto& weight : weights_) {
    weight.earlier = weight.tensor.grad();
    weight.tensor.mutable_grad() = at::Tensor();
  }
}

void TiedWeights::close_step() {
  const at::NoGradGuard no_grad;
  for (auto& weight : weights_) {
    at::Tensor& gradient = weight.tensor.mutable_grad();
    gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(weight.tensor).contiguous();
    weight.owners.all_reduce(gradient);
    if (weight.earlier.defined()) gradient = weight.earlier.add_(gradient);
    weight.earlier.reset();
  }
}

}  // namespace lockstep::pipeline
