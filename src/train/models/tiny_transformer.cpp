#include "lockstep/train/models/tiny_transformer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/container/sequential.h>

#include <cmath>

#include "lockstep/error.h"
#include "parallel/default_generator.h"
#include "parallel/seed.h"
#include "train/models/mlp_layers.h"
#include "train/models/transformer_layers.h"

namespace lockstep {

namespace {

/// The weights of GPT-2: normal with a small deviation, smaller where a block adds to the residual stream,
/// whose size would else grow with the depth; biases 0, norms 1. Radford et al., 2019.
class Initialiser {
 public:
  Initialiser(uint64_t seed, uint64_t layer)
      : generator_(
            at::detail::createCPUGenerator(parallel::derive_seed(seed, parallel::Stream::kWeights, layer))) {}

  void draw(at::Tensor weight, double deviation) { weight.normal_(0, deviation, generator_); }
  void draw(torch::nn::Linear& linear, double deviation) {
    draw(linear->weight, deviation);
    linear->bias.zero_();
  }

 private:
  at::Generator generator_;
};

torch::nn::Sequential make_layers(const TransformerConfig& config, uint64_t seed) {
  const parallel::KeepDefaultGenerator keep;  // constructors draw weights of their own from it
  const at::NoGradGuard no_grad;
  // Of the embeddings small, so that the first guesses are even; of the others so that a layer keeps the size
  // of what goes through it.
  constexpr double kEmbedding = 0.02;
  const double wide = 1 / std::sqrt(static_cast<double>(config.hidden_size));
  const double added = wide / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));

  torch::nn::Sequential layers;
  uint64_t number = 0;
  train::Embeddings embeddings(config);
  Initialiser first(seed, number++);
  first.draw(embeddings->token->weight, kEmbedding);
  first.draw(embeddings->position->weight, kEmbedding);
  layers->push_back("embeddings", embeddings);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    train::Block block(config);
    Initialiser init(seed, number++);
    init.draw(block->attention_qkv, wide);
    init.draw(block->attention_out, added);
    init.draw(block->mlp_in, wide);
    init.draw(block->mlp_out, added * std::sqrt(static_cast<double>(config.hidden_size) /
                                                static_cast<double>(config.intermediate_size)));
    layers->push_back(fmt::format("block{}", i), block);
  }
  layers->push_back("head", train::Head(config, embeddings->token->weight));
  return layers;
}

}  // namespace

TinyTransformerImpl::TinyTransformerImpl(const TransformerConfig& config)
    : TinyTransformerImpl(config, train::default_seed()) {}

TinyTransformerImpl::TinyTransformerImpl(const TransformerConfig& config, uint64_t seed) : config_(config) {
  check_config(config);
  layers_ = register_module("layers", make_layers(config, seed).ptr());
}

torch::Tensor TinyTransformerImpl::forward(const torch::Tensor& tokens, const torch::Tensor& next) {
  const auto logits = layers_->forward(tokens);
  return next.defined() ? next_token_loss(logits, next) : logits;
}

at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& next) {
  if (logits.dim() != 3 || next.sizes() != logits.sizes().slice(0, 2)) {
    throw UsageError(
        fmt::format("next_token_loss: logits of shape [{}] and tokens of shape [{}], expected "
                    "[B, T, vocab_size] and [B, T]",
                    fmt::join(logits.sizes(), ", "), fmt::join(next.sizes(), ", ")));
  }
  return at::cross_entropy_loss(logits.flatten(0, 1), next.reshape(-1));
}

}  // namespace lockstep
