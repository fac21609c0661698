#include "lab/nets.h"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <unordered_map>

namespace lab {

namespace {

torch::Tensor draw_tensor(const std::vector<int64_t>& shape, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator) / std::sqrt(static_cast<double>(shape.back()));
}

/// A weight and a bias.
struct NetLayer : torch::nn::Module {
  NetLayer(const torch::Tensor& of_weight, const torch::Tensor& of_bias)
      : weight(register_parameter("weight", of_weight)), bias(register_parameter("bias", of_bias)) {}
  NetLayer(int64_t dim, uint64_t seed)
      : NetLayer(draw_tensor({dim, dim}, seed), draw_tensor({dim}, seed + 1000)) {}
  torch::Tensor operator()(const torch::Tensor& input) const { return torch::linear(input, weight, bias); }
  torch::Tensor weight, bias;
};

/// Layers one after the other, each added to what came in, so that all of them get gradients worth averaging.
struct Mlp : Net {
  void add(const std::string& name, const std::shared_ptr<NetLayer>& layer) {
    layers.push_back(register_module(name, layer));
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    torch::Tensor value = input;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto output = (*layers[i])(value);
      watch_backward(static_cast<int>(i), output);
      value = value + torch::tanh(output);
    }
    return value;
  }
  std::vector<std::shared_ptr<NetLayer>> layers;
};

struct Experts : Net {
  Experts(int64_t dim, uint64_t seed)
      : in(register_module("in", std::make_shared<NetLayer>(dim, seed))),
        left(register_module("left", std::make_shared<NetLayer>(dim, seed + 1))),
        right(register_module("right", std::make_shared<NetLayer>(dim, seed + 2))),
        out(register_module("out", std::make_shared<NetLayer>(dim, seed + 3))) {}
  torch::Tensor forward(const torch::Tensor& input) override {
    const auto middle = torch::tanh((*in)(input));
    const auto goes_right = input.select(1, 0).gt(0);
    auto chosen = torch::zeros_like(middle);
    const auto pass = [&](const NetLayer& expert, const torch::Tensor& which) {
      const auto rows = which.nonzero().flatten();
      if (rows.numel() > 0) chosen = chosen.index_add(0, rows, expert(middle.index_select(0, rows)));
    };
    pass(*left, goes_right.logical_not());
    pass(*right, goes_right);
    return (*out)(torch::tanh(chosen));
  }
  std::shared_ptr<NetLayer> in, left, right, out;
};

}  // namespace

void Net::watch_backward(int layer, const torch::Tensor& output) {
  if (!before_backward_of || !output.requires_grad()) return;
  output.register_hook([this, layer](const torch::Tensor&) { before_backward_of(layer); });
}

std::span<float> floats(const torch::Tensor& tensor) {
  if (!tensor.defined()) {
    throw std::invalid_argument(
        "lab::floats: the tensor is undefined; hint: a parameter that took no part in this rank's loss has "
        "no gradient");
  }
  if (!tensor.is_contiguous() || tensor.scalar_type() != torch::kFloat) {
    throw std::invalid_argument(
        fmt::format("lab::floats: the tensor is {}; hint: only contiguous floats are "
                    "a span",
                    tensor.is_contiguous() ? "not of floats" : "not contiguous"));
  }
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

std::vector<NamedParameter> unique_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> all;
  std::unordered_map<const void*, size_t> known;
  for (const auto& item : module.named_parameters()) {
    const auto [found, is_new] = known.emplace(item.value().unsafeGetTensorImpl(), all.size());
    if (is_new) {
      all.push_back({item.key(), item.value()});
    } else {
      all[found->second].is_tied = true;
    }
  }
  return all;
}

std::vector<torch::Tensor> trainable_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : unique_parameters(module)) {
    if (parameter.tensor.requires_grad()) all.push_back(parameter.tensor);
  }
  return all;
}

std::shared_ptr<Net> make_mlp(int64_t dim, int depth, uint64_t seed) {
  auto net = std::make_shared<Mlp>();
  for (int i = 0; i < depth; ++i) {
    net->add(fmt::format("layer{}", i), std::make_shared<NetLayer>(dim, seed + static_cast<uint64_t>(i)));
  }
  return net;
}

std::shared_ptr<Net> make_tied(int64_t dim, uint64_t seed) {
  auto net = std::make_shared<Mlp>();
  const auto first = std::make_shared<NetLayer>(dim, seed);
  net->add("first", first);
  net->add("last", std::make_shared<NetLayer>(first->weight, draw_tensor({dim}, seed + 1)));
  return net;
}

std::shared_ptr<Net> make_frozen(int64_t dim, uint64_t seed) {
  auto net = std::make_shared<Mlp>();
  const auto frozen = std::make_shared<NetLayer>(dim, seed + 1);
  frozen->weight.set_requires_grad(false);
  frozen->bias.set_requires_grad(false);
  net->add("first", std::make_shared<NetLayer>(dim, seed));
  net->add("frozen", frozen);
  net->add("last", std::make_shared<NetLayer>(dim, seed + 2));
  return net;
}

std::shared_ptr<Net> make_mixed(int64_t dim, int depth, uint64_t seed, uint64_t shape) {
  auto net = std::make_shared<Mlp>();
  std::mt19937_64 draw(shape);
  for (int i = 0; i < depth; ++i) {
    auto layer = std::make_shared<NetLayer>(draw_tensor({dim, dim}, seed + static_cast<uint64_t>(i)),
                                            torch::zeros({dim}));
    const bool is_last = i + 1 == depth;
    if (is_last || (i > 1 && draw() % 2 == 0)) {
      const size_t of = is_last ? 0 : draw() % net->layers.size();
      layer = std::make_shared<NetLayer>(net->layers[of]->weight, layer->bias);
    } else if (i == 1 || (i > 1 && draw() % 4 == 0)) {
      layer->weight.set_requires_grad(false);
    }
    if (!is_last && draw() % 4 == 0) layer->bias.set_requires_grad(false);
    net->add(fmt::format("part{}", i), layer);
  }
  return net;
}

std::shared_ptr<Net> make_experts(int64_t dim, uint64_t seed) {
  return std::make_shared<Experts>(dim, seed);
}

}  // namespace lab
