#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_module_holder.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "lockstep/train/models/transformer_config.h"

namespace torch::nn {
class SequentialImpl;
}

namespace lockstep {

/// A small GPT: token and position embeddings, blocks of causal attention and a GELU MLP, each behind a
/// LayerNorm (pre-norm), a last LayerNorm, and a head that shares the token embedding's weight.
///
/// It is a `Sequential` of `embeddings`, `block0`, `block1`, ..., `head`, so that it can be cut into stages
/// (take_stage); `head.weight` is `embeddings.token.weight`. Position t of the output depends on tokens 0 to
/// t alone. A layer's first weights are a function of (seed, layer, shape) alone.
class TinyTransformerImpl : public torch::nn::Module {
 public:
  /// Seeded as FullMLP. Throws UsageError, naming key and value, for an impossible config.
  explicit TinyTransformerImpl(const TransformerConfig& config);
  TinyTransformerImpl(const TransformerConfig& config, uint64_t seed);

  /// [B, T] tokens (int64) -> [B, T, vocab_size] logits of the token behind each. With `next` [B, T], the
  /// tokens behind: the mean cross entropy instead. Throws UsageError for any other shape or type.
  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& next = {});

  const TransformerConfig& config() const { return config_; }
  /// The layers, for cutting.
  const std::shared_ptr<torch::nn::SequentialImpl>& layers() const { return layers_; }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(torch::Tensor())})

 private:
  TransformerConfig config_;
  std::shared_ptr<torch::nn::SequentialImpl> layers_;
};

TORCH_MODULE(TinyTransformer);

/// The mean over all positions of -ln p of the token `next` [B, T] that came, by `logits` [B, T, vocab_size].
at::Tensor next_token_loss(const at::Tensor& logits, const at::Tensor& next);

}  // namespace lockstep
