#include "train/models/causal_attention.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "lockstep/error.h"
#include "train/models/kernels/kernels.h"

namespace lockstep::train {

namespace {

/// Where the heads of a [B, T, 3C] tensor are.
class Heads {
 public:
  Heads(const at::Tensor& qkv, int64_t heads)
      : samples_(qkv.size(0)), heads_(heads), length_(qkv.size(1)), width_(qkv.size(2) / 3) {}

  int64_t count() const { return samples_ * heads_; }
  /// Numbers between the weights of two heads.
  int64_t weights_size() const { return kernels::padded(length_) * kernels::padded(length_); }
  int64_t scratch_size() const { return kernels::attention_scratch(length_, width_ / heads_); }
  at::IntArrayRef mask_shape() const { return mask_shape_; }

  kernels::Head head() const {
    const int64_t depth = width_ / heads_;
    return {.length = length_,
            .depth = depth,
            .stride = 3 * width_,
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(depth)))};
  }
  int64_t output_stride() const { return width_; }

  /// The first number of head i: of queries or, `part` of 1 and 2, of keys and values; in the output.
  template <typename T>
  T* part(T* qkv, int64_t i, int64_t part) const {
    return qkv + i / heads_ * length_ * 3 * width_ + part * width_ + column(i);
  }
  template <typename T>
  T* output(T* output, int64_t i) const {
    return output + i / heads_ * length_ * width_ + column(i);
  }
  kernels::AttentionInput input(const float* qkv, const float* kept, int64_t i) const {
    return {.query = part(qkv, i, 0),
            .key = part(qkv, i, 1),
            .value = part(qkv, i, 2),
            .kept = kept == nullptr ? nullptr : kept + i * length_ * length_};
  }

 private:
  int64_t column(int64_t i) const { return i % heads_ * (width_ / heads_); }

  int64_t samples_, heads_, length_, width_;
  std::vector<int64_t> mask_shape_ = {samples_, heads_, length_, length_};
};

/// What at::dropout() would multiply the weights by, of the same random numbers.
at::Tensor draw_kept(const Heads& heads, const at::Tensor& like, double dropout) {
  if (dropout == 0) return {};
  return at::empty(heads.mask_shape(), like.options()).bernoulli_(1 - dropout).div_(1 - dropout);
}

const float* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

class CausalAttention : public torch::autograd::Function<CausalAttention> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& any_qkv,
                            int64_t head_count, double dropout) {
    const at::Tensor qkv = any_qkv.contiguous();
    const Heads heads(qkv, head_count);
    const at::Tensor kept = draw_kept(heads, qkv, dropout);
    const auto weights = at::empty({heads.count(), heads.weights_size()}, qkv.options());
    auto output = at::empty({qkv.size(0), qkv.size(1), heads.output_stride()}, qkv.options());
    at::parallel_for(0, heads.count(), 1, [&](int64_t begin, int64_t end) {
      const auto scratch = at::empty({heads.scratch_size()}, qkv.options());
      for (int64_t i = begin; i < end; ++i) {
        kernels::kernels().attention_forward(heads.head(), heads.input(data_of(qkv), data_of(kept), i),
                                             weights.data_ptr<float>() + i * heads.weights_size(),
                                             heads.output(output.data_ptr<float>(), i), heads.output_stride(),
                                             scratch.data_ptr<float>());
      }
    });
    context->save_for_backward({qkv, weights, kept});
    context->saved_data["heads"] = head_count;
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw UsageError(
          "causal_attention: a gradient of its gradient is asked for, which it does not have; hint: backward "
          "without create_graph, or weights of float64");
    }
    const auto saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &weights = saved[1], &kept = saved[2];
    const Heads heads(qkv, context->saved_data["heads"].toInt());
    const at::Tensor output = gradients[0].contiguous();
    auto gradient = at::empty_like(qkv);
    at::parallel_for(0, heads.count(), 1, [&](int64_t begin, int64_t end) {
      const auto scratch = at::empty({heads.scratch_size()}, qkv.options());
      float* const to = gradient.data_ptr<float>();
      for (int64_t i = begin; i < end; ++i) {
        kernels::kernels().attention_backward(
            heads.head(), heads.input(data_of(qkv), data_of(kept), i),
            weights.data_ptr<float>() + i * heads.weights_size(), heads.output(data_of(output), i),
            heads.output_stride(),
            {.query = heads.part(to, i, 0), .key = heads.part(to, i, 1), .value = heads.part(to, i, 2)},
            scratch.data_ptr<float>());
      }
    });
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, double dropout) {
  if (qkv.scalar_type() != at::kFloat || !qkv.device().is_cpu())
    return naive_causal_attention(qkv, heads, dropout);
  return CausalAttention::apply(qkv, heads, dropout);
}

at::Tensor naive_causal_attention(const at::Tensor& qkv, int64_t heads, double dropout) {
  const int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  // [3, B, heads, T, D]
  const auto parts = qkv.view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  const auto query = parts[0], key = parts[1], value = parts[2];
  const double scale = 1 / std::sqrt(static_cast<double>(width / heads));
  const auto later = at::ones({length, length}, qkv.options().dtype(at::kBool)).triu(1);
  const auto scores = at::matmul(query * scale, key.transpose(-2, -1))
                          .masked_fill(later, -std::numeric_limits<double>::infinity());
  const auto weights = at::dropout(at::softmax(scores, -1), dropout, dropout > 0);
  return at::matmul(weights, value).transpose(1, 2).reshape({batch, length, width});
}

}  // namespace lockstep::train
