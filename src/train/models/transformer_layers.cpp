#include "train/models/transformer_layers.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/error.h"
#include "train/models/causal_attention.h"
#include "train/models/fused_block.h"

namespace lockstep::train {

namespace {

torch::nn::LayerNorm make_norm(const TransformerConfig& config) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.hidden_size}).eps(config.layer_norm_eps));
}

}  // namespace

EmbeddingsImpl::EmbeddingsImpl(const TransformerConfig& config)
    : token(register_module("token", torch::nn::Embedding(config.vocab_size, config.hidden_size))),
      position(register_module("position",
                               torch::nn::Embedding(config.max_position_embeddings, config.hidden_size))),
      dropout_(config.hidden_dropout_prob),
      vocabulary_(config.vocab_size),
      longest_(config.max_position_embeddings) {}

torch::Tensor EmbeddingsImpl::forward(const torch::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    throw UsageError(
        fmt::format("TinyTransformer: the input has shape [{}] and type {}, expected [B, T] of Long",
                    fmt::join(tokens.sizes(), ", "), toString(tokens.scalar_type())));
  }
  if (tokens.size(1) > longest_) {
    throw UsageError(
        fmt::format("TinyTransformer: a sequence of {} tokens, at most {} fit; hint: raise "
                    "max_position_embeddings",
                    tokens.size(1), longest_));
  }
  const auto places = at::arange(tokens.size(1), tokens.options());
  return at::dropout(token(tokens) + position(places), dropout_, is_training());
}

BlockImpl::BlockImpl(const TransformerConfig& config)
    : attention_norm(register_module("attention_norm", make_norm(config))),
      mlp_norm(register_module("mlp_norm", make_norm(config))),
      attention_qkv(
          register_module("attention_qkv", torch::nn::Linear(config.hidden_size, 3 * config.hidden_size))),
      attention_out(
          register_module("attention_out", torch::nn::Linear(config.hidden_size, config.hidden_size))),
      mlp_in(register_module("mlp_in", torch::nn::Linear(config.hidden_size, config.intermediate_size))),
      mlp_out(register_module("mlp_out", torch::nn::Linear(config.intermediate_size, config.hidden_size))),
      heads_(config.num_attention_heads),
      hidden_dropout_(config.hidden_dropout_prob),
      attention_dropout_(config.attention_probs_dropout_prob) {}

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  const BlockTensors weights = {attention_norm->weight, attention_norm->bias,  mlp_norm->weight,
                                mlp_norm->bias,         attention_qkv->weight, attention_qkv->bias,
                                attention_out->weight,  attention_out->bias,   mlp_in->weight,
                                mlp_in->bias,           mlp_out->weight,       mlp_out->bias};
  if (can_fuse(x, weights)) {
    return fused_block(x, weights,
                       {.heads = heads_,
                        .eps = attention_norm->options.eps(),
                        .hidden_dropout = is_training() ? hidden_dropout_ : 0,
                        .attention_dropout = is_training() ? attention_dropout_ : 0});
  }
  return naive_forward(x);
}

torch::Tensor BlockImpl::naive_forward(const torch::Tensor& x) {
  const auto dropped = [&](const torch::Tensor& added) {
    return at::dropout(added, hidden_dropout_, is_training());
  };
  const auto attended =
      causal_attention(attention_qkv(attention_norm(x)), heads_, is_training() ? attention_dropout_ : 0);
  const auto middle = x + dropped(attention_out(attended));
  return middle + dropped(mlp_out(at::gelu(mlp_in(mlp_norm(middle)))));
}

HeadImpl::HeadImpl(const TransformerConfig& config, const torch::Tensor& token_weight)
    : norm(register_module("norm", make_norm(config))), weight(register_parameter("weight", token_weight)) {}

torch::Tensor HeadImpl::forward(const torch::Tensor& x) {
  return at::linear(norm(x), weight);
}

}  // namespace lockstep::train
