#pragma once

#include <array>
#include <cstdint>

/// A block of the transformer on one sample, made of kernels, on plain memory. A sample's numbers stay in the
/// core's own cache from the block's first product to its last.
namespace lockstep::train::kernels {

/// Weights of a block, in the order of its parameters. Matrices are [outputs, inputs].
enum BlockWeight {
  kAttentionNormWeight,
  kAttentionNormBias,
  kMlpNormWeight,
  kMlpNormBias,
  kQkvWeight,
  kQkvBias,
  kOutWeight,
  kOutBias,
  kMlpInWeight,
  kMlpInBias,
  kMlpOutWeight,
  kMlpOutBias,
  kBlockWeights,
};

struct BlockShape {
  int64_t length;  ///< T: tokens.
  int64_t width;   ///< C, padded.
  int64_t inner;   ///< I: of the MLP, padded.
  int64_t heads;
  float eps;

  int64_t weight_size(int weight) const;
  int64_t attention_size() const;  ///< Of the attention's weights of all heads.
  int64_t scratch_size() const;    ///< Of each of the functions below.
};

using BlockWeights = std::array<const float*, kBlockWeights>;
using BlockGradients = std::array<float*, kBlockWeights>;

/// What a block makes of a sample, and keeps for its gradients. `kept`: what dropout multiplies by, null if
/// nothing is dropped.
struct BlockSample {
  const float* x;               ///< [T, C]
  float* qkv;                   ///< [T, 3C]
  float* attention;             ///< attention_size()
  float* attended;              ///< [T, C]
  float* middle;                ///< [T, C]: x and attention's part.
  float* inner;                 ///< [T, I]: before GELU.
  const float* attention_kept;  ///< [heads, T, T]
  const float* attended_kept;   ///< [T, C]
  const float* mlp_kept;        ///< [T, C]
};

/// `transposed`, of which the four matrices are used: [inputs, outputs].
void block_forward(const BlockShape& shape, const BlockWeights& weights, const BlockWeights& transposed,
                   const BlockSample& sample, float* output, float* scratch);

/// `input_gradient` by `output_gradient`; the weights' are added to.
void block_backward(const BlockShape& shape, const BlockWeights& weights, const BlockSample& sample,
                    const float* output_gradient, float* input_gradient, const BlockGradients& gradients,
                    float* scratch);

/// [rows, columns] -> [columns, rows].
void transpose(const float* from, int64_t rows, int64_t columns, float* to);

}  // namespace lockstep::train::kernels
