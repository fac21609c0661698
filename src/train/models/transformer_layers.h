#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include "lockstep/train/models/transformer_config.h"

namespace lockstep::train {

// The layers of TinyTransformer. Each makes one tensor of one tensor, so that it can stand in a Sequential.

/// [B, T] tokens -> [B, T, C]: what a token is, and where it stands.
class EmbeddingsImpl : public torch::nn::Module {
 public:
  explicit EmbeddingsImpl(const TransformerConfig& config);
  torch::Tensor forward(const torch::Tensor& tokens);

  torch::nn::Embedding token, position;

 private:
  double dropout_;
  int64_t vocabulary_, longest_;
};
TORCH_MODULE(Embeddings);

/// [B, T, C] -> [B, T, C]: adds attention's part, then the MLP's.
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const TransformerConfig& config);
  /// As one function where that can be, else naive_forward().
  torch::Tensor forward(const torch::Tensor& x);
  /// The same by LibTorch's operations.
  torch::Tensor naive_forward(const torch::Tensor& x);

  torch::nn::LayerNorm attention_norm, mlp_norm;
  torch::nn::Linear attention_qkv, attention_out, mlp_in, mlp_out;

 private:
  int64_t heads_;
  double hidden_dropout_, attention_dropout_;
};
TORCH_MODULE(Block);

/// [B, T, C] -> [B, T, vocab_size]: logits by the token embedding's own weight.
class HeadImpl : public torch::nn::Module {
 public:
  HeadImpl(const TransformerConfig& config, const torch::Tensor& token_weight);
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::LayerNorm norm;
  torch::Tensor weight;
};
TORCH_MODULE(Head);

}  // namespace lockstep::train
