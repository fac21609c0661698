#include "train/models/kernels/block.h"

#include <algorithm>
#include <cmath>

#include "train/models/kernels/kernels.h"

namespace lockstep::train::kernels {

namespace {

/// The functions of one call, with what all of them need.
class Block {
 public:
  Block(const BlockShape& shape, const BlockWeights& weights, const BlockSample& sample, float* scratch)
      : shape_(shape), weights_(weights), sample_(sample), scratch_(scratch) {
    normed_ = take(shape.length * shape.width);
    statistics_ = take(2 * shape.length);
  }

  void forward(const BlockWeights& transposed, float* output) {
    const int64_t width = shape_.width, inner = shape_.inner;
    float* const added = take(shape_.length * width);
    float* const active = take(shape_.length * inner);
    float* const attention_scratch = take(0);

    norm(attention_norm(), sample_.x);
    linear(normed_, width, transposed[kQkvWeight], kQkvBias, 3 * width, sample_.qkv);
    for (int64_t i = 0; i < shape_.heads; ++i) {
      use_.attention_forward(head(), input_of(i), attention_of(i), sample_.attended + i * depth(), width,
                             attention_scratch);
    }
    linear(sample_.attended, width, transposed[kOutWeight], kOutBias, width, added);
    add(sample_.x, added, sample_.attended_kept, sample_.middle);

    norm(mlp_norm(), sample_.middle);
    linear(normed_, width, transposed[kMlpInWeight], kMlpInBias, inner, sample_.inner);
    use_.gelu_forward(shape_.length * inner, sample_.inner, active);
    linear(active, inner, transposed[kMlpOutWeight], kMlpOutBias, width, added);
    add(sample_.middle, added, sample_.mlp_kept, output);
  }

  void backward(const float* output_gradient, float* input_gradient, const BlockGradients& gradients) {
    const int64_t width = shape_.width, inner = shape_.inner, length = shape_.length;
    float* const slope = take(length * width);  // of what is added to the residual stream
    float* const middle = take(length * width);
    float* const active = take(length * inner);
    float* const inner_slope = take(length * std::max(inner, 3 * width));
    float* const attention_scratch = take(0);

    // y = middle + MLP(norm(middle))
    const float* const added = kept_of(output_gradient, sample_.mlp_kept, slope);
    linear_input(added, width, kMlpOutWeight, inner, inner_slope);
    use_.gelu_backward(length * inner, sample_.inner, active, inner_slope);
    linear_weights(added, width, active, inner, gradients[kMlpOutWeight], gradients[kMlpOutBias]);
    norm(mlp_norm(), sample_.middle);
    linear_weights(inner_slope, inner, normed_, width, gradients[kMlpInWeight], gradients[kMlpInBias]);
    linear_input(inner_slope, inner, kMlpInWeight, width, normed_);
    std::copy_n(output_gradient, length * width, middle);
    use_.norm_backward({length, width}, mlp_norm(), sample_.middle, normed_, middle,
                       {gradients[kMlpNormWeight], gradients[kMlpNormBias]});

    // middle = x + attention(norm(x))
    const float* const attended = kept_of(middle, sample_.attended_kept, slope);
    linear_weights(attended, width, sample_.attended, width, gradients[kOutWeight], gradients[kOutBias]);
    linear_input(attended, width, kOutWeight, width, normed_);
    float* const qkv = inner_slope;
    for (int64_t i = 0; i < shape_.heads; ++i) {
      float* const query = qkv + i * depth();
      use_.attention_backward(head(), input_of(i), attention_of(i), normed_ + i * depth(), width,
                              {query, query + width, query + 2 * width}, attention_scratch);
    }
    norm(attention_norm(), sample_.x);
    linear_weights(qkv, 3 * width, normed_, width, gradients[kQkvWeight], gradients[kQkvBias]);
    linear_input(qkv, 3 * width, kQkvWeight, width, normed_);
    std::copy_n(middle, length * width, input_gradient);
    use_.norm_backward({length, width}, attention_norm(), sample_.x, normed_, input_gradient,
                       {gradients[kAttentionNormWeight], gradients[kAttentionNormBias]});
  }

 private:
  float* take(int64_t count) {
    float* const taken = scratch_;
    scratch_ += count;
    return taken;
  }

  int64_t depth() const { return shape_.width / shape_.heads; }
  Head head() const {
    return {.length = shape_.length,
            .depth = depth(),
            .stride = 3 * shape_.width,
            .scale = 1 / std::sqrt(static_cast<float>(depth()))};
  }
  AttentionInput input_of(int64_t i) const {
    const float* const query = sample_.qkv + i * depth();
    const int64_t square = shape_.length * shape_.length;
    return {.query = query,
            .key = query + shape_.width,
            .value = query + 2 * shape_.width,
            .kept = sample_.attention_kept == nullptr ? nullptr : sample_.attention_kept + i * square};
  }
  float* attention_of(int64_t i) const {
    return sample_.attention + i * shape_.attention_size() / shape_.heads;
  }
  Norm norm_of(int weight, int bias) const {
    return {.weight = weights_[static_cast<size_t>(weight)],
            .bias = weights_[static_cast<size_t>(bias)],
            .eps = shape_.eps,
            .statistics = statistics_};
  }
  Norm attention_norm() const { return norm_of(kAttentionNormWeight, kAttentionNormBias); }
  Norm mlp_norm() const { return norm_of(kMlpNormWeight, kMlpNormBias); }
  void norm(const Norm& norm, const float* x) {
    use_.norm_forward({shape_.length, shape_.width}, norm, x, normed_);
  }

  /// [T, inputs] times [inputs, outputs], and a bias.
  void linear(const float* x, int64_t inputs, const float* transposed, int bias, int64_t outputs, float* to) {
    use_.product({.m = shape_.length,
                  .n = outputs,
                  .k = inputs,
                  .a = x,
                  .a_row = inputs,
                  .a_column = 1,
                  .b = transposed,
                  .b_row = outputs,
                  .c = to,
                  .c_row = outputs,
                  .bias = weights_[static_cast<size_t>(bias)]});
  }
  /// The gradient of a linear layer's input by that of its output, [T, outputs].
  void linear_input(const float* gradient, int64_t outputs, int weight, int64_t inputs, float* to) {
    use_.product({.m = shape_.length,
                  .n = inputs,
                  .k = outputs,
                  .a = gradient,
                  .a_row = outputs,
                  .a_column = 1,
                  .b = weights_[static_cast<size_t>(weight)],
                  .b_row = inputs,
                  .c = to,
                  .c_row = inputs});
  }
  void linear_weights(const float* gradient, int64_t outputs, const float* x, int64_t inputs, float* weight,
                      float* bias) {
    use_.product({.m = outputs,
                  .n = inputs,
                  .k = shape_.length,
                  .a = gradient,
                  .a_row = 1,
                  .a_column = outputs,
                  .b = x,
                  .b_row = inputs,
                  .c = weight,
                  .c_row = inputs,
                  .adds = true});
    use_.add_columns({shape_.length, outputs}, gradient, bias);
  }

  /// `to` = x + added, of which dropout keeps some.
  void add(const float* x, const float* added, const float* kept, float* to) const {
    const int64_t count = shape_.length * shape_.width;
    if (kept == nullptr) {
      for (int64_t i = 0; i < count; ++i) to[i] = x[i] + added[i];
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = x[i] + added[i] * kept[i];
    }
  }
  const float* kept_of(const float* gradient, const float* kept, float* to) const {
    if (kept == nullptr) return gradient;
    for (int64_t i = 0; i < shape_.length * shape_.width; ++i) to[i] = gradient[i] * kept[i];
    return to;
  }

  const Kernels& use_ = kernels();
  const BlockShape& shape_;
  const BlockWeights& weights_;
  const BlockSample& sample_;
  float* scratch_;
  float *normed_, *statistics_;
};

}  // namespace

int64_t BlockShape::weight_size(int weight) const {
  switch (weight) {
    case kQkvWeight:
      return 3 * width * width;
    case kQkvBias:
      return 3 * width;
    case kOutWeight:
      return width * width;
    case kMlpInWeight:
    case kMlpOutWeight:
      return width * inner;
    case kMlpInBias:
      return inner;
    default:
      return width;
  }
}

int64_t BlockShape::attention_size() const {
  return heads * padded(length) * padded(length);
}

int64_t BlockShape::scratch_size() const {
  return length * (3 * width + 2 + inner + std::max(inner, 3 * width)) +
         attention_scratch(length, width / heads);
}

void block_forward(const BlockShape& shape, const BlockWeights& weights, const BlockWeights& transposed,
                   const BlockSample& sample, float* output, float* scratch) {
  Block(shape, weights, sample, scratch).forward(transposed, output);
}

void block_backward(const BlockShape& shape, const BlockWeights& weights, const BlockSample& sample,
                    const float* output_gradient, float* input_gradient, const BlockGradients& gradients,
                    float* scratch) {
  Block(shape, weights, sample, scratch).backward(output_gradient, input_gradient, gradients);
}

void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  constexpr int64_t kTile = 16;  // squares whose lines all stay in the nearest cache
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) {
      for (int64_t j = column; j < std::min(column + kTile, columns); ++j) {
        for (int64_t i = row; i < std::min(row + kTile, rows); ++i) to[j * rows + i] = from[i * columns + j];
      }
    }
  }
}

}  // namespace lockstep::train::kernels
