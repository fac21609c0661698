#include "parallel/ddp/replica.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "comms/copy.h"
#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"
#include "parallel/ddp/agreement.h"

namespace lockstep::ddp {

namespace {

std::string describe(const std::string& kind, const std::string& name, const at::Tensor& tensor) {
  return fmt::format("{} '{}' of shape [{}], strides [{}], {}{}", kind, name, fmt::join(tensor.sizes(), ", "),
                     fmt::join(tensor.strides(), ", "), c10::toString(tensor.scalar_type()),
                     kind == "parameter" && !tensor.requires_grad() ? ", frozen" : "");
}

/// FNV-1a, word by word: fast enough for a check every few hundred steps, and the same everywhere.
uint64_t hash_of(const Buffer& memory) {
  uint64_t hash = 0xcbf29ce484222325U;
  const auto* at = static_cast<const std::byte*>(memory.data);
  size_t left = memory.bytes();
  while (left > 0) {
    uint64_t word = 0;
    const size_t taken = std::min(left, sizeof(word));
    std::memcpy(&word, at, taken);
    hash = (hash ^ word) * 0x100000001b3U;
    hash ^= hash >> 29;
    at += taken;
    left -= taken;
  }
  return hash;
}

}  // namespace

std::vector<NamedParameter> list_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> parameters;
  std::unordered_map<const void*, size_t> known;
  for (const auto& item : module.named_parameters()) {
    const auto [found, is_new] = known.emplace(item.value().unsafeGetTensorImpl(), parameters.size());
    if (is_new) {
      parameters.push_back({.name = item.key(), .other_names = {}, .tensor = item.value()});
    } else {
      parameters[found->second].other_names.push_back(item.key());
    }
  }
  return parameters;
}

Buffer memory_of(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense()) {
    return {tensor.data_ptr(), tensor.numel(), Buffer(tensor.as_strided({tensor.numel()}, {1})).type};
  }
  throw UsageError(
      fmt::format("DistributedDataParallel: '{}' of shape [{}] has gaps or overlaps in its memory; "
                  "hint: make it contiguous",
                  name, fmt::join(tensor.sizes(), ", ")));
}

Replica::Replica(std::shared_ptr<torch::nn::Module> module, Communicator comm)
    : module_(std::move(module)), comm_(std::move(comm)), parameters_(list_parameters(*module_)) {
  for (const auto& item : module_->named_buffers()) has_buffers_ = has_buffers_ || item.value().defined();
}

void Replica::compare_shapes() {
  std::vector<std::string> descriptions;
  for (const auto& [name, other_names, tensor] : parameters_) {
    descriptions.push_back(describe("parameter", name, tensor));
    for (const auto& other : other_names)
      descriptions.push_back(fmt::format("'{}', tied to '{}'", other, name));
  }
  for (const auto& item : module_->named_buffers()) {
    if (item.value().defined()) descriptions.push_back(describe("buffer", item.key(), item.value()));
  }
  const std::string difference = first_difference(comm_, descriptions);
  if (difference.empty()) return;
  throw UsageError(
      fmt::format("DistributedDataParallel: {}; hint: all ranks must make the same model", difference));
}

void Replica::compare_weights(int64_t step) {
  const size_t count = parameters_.size();
  std::vector<int64_t> own;
  for (const auto& [name, other_names, tensor] : parameters_) {
    own.push_back(static_cast<int64_t>(hash_of(memory_of(name, tensor))));
  }
  std::vector<int64_t> all(count * static_cast<size_t>(comm_.world_size()));
  comm_.all_gather(own, all);
  for (size_t i = 0; i < count; ++i) {
    for (size_t rank = 1; rank < all.size() / count; ++rank) {
      if (all[rank * count + i] == all[i]) continue;
      throw Error(
          fmt::format("ddp step {}: parameter '{}' of rank {} differs from rank 0's; hint: every rank "
                      "must take the same optimizer steps, and nothing else may change weights",
                      step, parameters_[i].name, rank));
    }
  }
}

std::string Replica::what_changed() const {
  for (const auto& item : module_->named_parameters()) {
    const bool is_known =
        std::any_of(parameters_.begin(), parameters_.end(),
                    [&](const NamedParameter& each) { return each.tensor.is_same(item.value()); });
    if (is_known) continue;
    return fmt::format(
        "parameter '{}' came to the model, or took another's place, after DistributedDataParallel was "
        "made; hint: make it anew",
        item.key());
  }
  return "";
}

void Replica::broadcast_parameters(int root) {
  for (const auto& [name, other_names, tensor] : parameters_) {
    comm_.broadcast(memory_of(name, tensor), root);
    torch::autograd::impl::bump_version(tensor);
  }
}

void Replica::broadcast_buffers(int root) {
  // Those of one type together: they are many and small.
  std::map<at::ScalarType, std::vector<Buffer>> by_type;
  std::vector<at::Tensor> kept;  // their memory
  for (const auto& item : module_->named_buffers()) {
    if (!item.value().defined()) continue;
    kept.push_back(item.value());
    by_type[item.value().scalar_type()].push_back(memory_of(item.key(), item.value()));
  }
  for (const auto& [type, buffers] : by_type) {
    int64_t count = 0;
    for (const Buffer& buffer : buffers) count += buffer.count;
    const at::Tensor together = at::empty({count}, type);
    auto* const begin = static_cast<std::byte*>(together.data_ptr());
    const auto move_all = [&](bool in) {
      std::byte* at = begin;
      for (const Buffer& buffer : buffers) {
        if (in) {
          comms::copy(at, buffer.data, buffer.bytes());
        } else {
          comms::copy(buffer.data, at, buffer.bytes());
        }
        at += buffer.bytes();
      }
    };
    if (comm_.rank() == root) move_all(/*in=*/true);
    comm_.broadcast(together, root);
    if (comm_.rank() != root) move_all(/*in=*/false);
  }
}

}  // namespace lockstep::ddp
