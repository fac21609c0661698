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

/// The names that any rank has, alike on all.
std::set<std::string> all_names(Communicator& comm, const std::map<std::string, at::Tensor>& mine) {
  std::string lines;
  for (const auto& [name, tensor] : mine) {
    if (name.find('\n') != std::string::npos) throw UsageError("a tied weight's name has a line break");
    lines += name + '\n';
  }
  std::set<std::string> names;
  for (const auto& text : ddp::gather_texts(comm, lines)) {
    std::istringstream stream(text);
    for (std::string name; std::getline(stream, name);) names.insert(name);
  }
  return names;
}

}  // namespace

TiedWeights::TiedWeights(Communicator& comm, const std::map<std::string, at::Tensor>& mine) {
  for (const auto& name : all_names(comm, mine)) {
    const auto found = mine.find(name);
    auto owners = comm.split(found == mine.end() ? -1 : 0);
    if (!owners) continue;
    const at::Tensor& tensor = found->second;
    std::ostringstream shape;
    shape << tensor.sizes() << ", " << tensor.scalar_type();
    if (const auto difference = ddp::first_difference(*owners, {shape.str()}); !difference.empty()) {
      throw UsageError(fmt::format("tied weight '{}': {}", name, difference));
    }
    const at::NoGradGuard no_grad;
    at::Tensor start = tensor.detach().contiguous();
    owners->broadcast(start);
    tensor.detach().copy_(start);
    weights_.push_back({tensor, *owners});
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
