#include "train/models/fused_block.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "lockstep/error.h"
#include "train/models/kernels/kernels.h"

namespace lockstep::train {

namespace {

using kernels::BlockShape;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kWeights = static_cast<size_t>(kernels::kBlockWeights);

/// Tensors that are kept for the gradients, by their place behind the weights.
enum Kept : size_t {
  kX,
  kQkv,
  kAttention,
  kAttended,
  kMiddle,
  kInner,
  kAttentionKept,
  kAttendedKept,
  kMlpKept,
  kKept
};
using KeptTensors = std::array<at::Tensor, kKept>;

float* floats_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

float* of_sample(const at::Tensor& tensor, int64_t sample) {
  return tensor.defined() ? tensor.data_ptr<float>() + sample * tensor.stride(0) : nullptr;
}

kernels::BlockSample sample_of(const KeptTensors& kept, int64_t i) {
  return {.x = of_sample(kept[kX], i),
          .qkv = of_sample(kept[kQkv], i),
          .attention = of_sample(kept[kAttention], i),
          .attended = of_sample(kept[kAttended], i),
          .middle = of_sample(kept[kMiddle], i),
          .inner = of_sample(kept[kInner], i),
          .attention_kept = of_sample(kept[kAttentionKept], i),
          .attended_kept = of_sample(kept[kAttendedKept], i),
          .mlp_kept = of_sample(kept[kMlpKept], i)};
}

BlockShape shape_of(const at::Tensor& x, int64_t inner, int64_t heads, double eps) {
  return {.length = x.size(1),
          .width = x.size(2),
          .inner = inner,
          .heads = heads,
          .eps = static_cast<float>(eps)};
}

kernels::BlockWeights pointers(const BlockTensors& weights) {
  kernels::BlockWeights all;
  std::transform(weights.begin(), weights.end(), all.begin(), floats_of);
  return all;
}

/// What at::dropout() would multiply by, of the same random numbers.
at::Tensor draw_kept(at::IntArrayRef shape, const at::Tensor& like, double dropout) {
  if (dropout == 0) return {};
  return at::empty(shape, like.options()).bernoulli_(1 - dropout).div_(1 - dropout);
}

KeptTensors make_kept(const at::Tensor& x, const BlockShape& shape, const BlockOptions& options) {
  const int64_t samples = x.size(0), length = shape.length;
  const auto make = [&](int64_t size) { return at::empty({samples, size}, x.options()); };
  KeptTensors kept = {x,
                      make(3 * length * shape.width),
                      make(shape.attention_size()),
                      make(length * shape.width),
                      make(length * shape.width),
                      make(length * shape.inner)};
  kept[kAttentionKept] = draw_kept({samples, shape.heads, length, length}, x, options.attention_dropout);
  kept[kAttendedKept] = draw_kept({samples, length, shape.width}, x, options.hidden_dropout);
  kept[kMlpKept] = draw_kept({samples, length, shape.width}, x, options.hidden_dropout);
  return kept;
}

/// Runs act(part, begin, end, scratch) for a part of the samples on each thread. Which samples are a part
/// depends on the number of threads alone.
template <typename Act>
void on_parts(int64_t parts, int64_t samples, const BlockShape& shape, const Act& act) {
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    const auto scratch = at::empty({shape.scratch_size()}, at::kFloat);
    for (int64_t part = first; part < last; ++part)
      act(part, samples * part / parts, samples * (part + 1) / parts, floats_of(scratch));
  });
}

int64_t part_count(int64_t samples) {
  return std::max<int64_t>(1, std::min<int64_t>(at::get_num_threads(), samples));
}

class FusedBlock : public torch::autograd::Function<FusedBlock> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& any_x, const at::Tensor& w0,
                            const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& w3,
                            const at::Tensor& w4, const at::Tensor& w5, const at::Tensor& w6,
                            const at::Tensor& w7, const at::Tensor& w8, const at::Tensor& w9,
                            const at::Tensor& w10, const at::Tensor& w11, const BlockOptions& options) {
    const BlockTensors weights = {w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11};
    const at::Tensor x = any_x.contiguous();
    const BlockShape shape = shape_of(x, weights[kernels::kMlpInWeight].size(0), options.heads, options.eps);
    const KeptTensors kept = make_kept(x, shape, options);
    auto output = at::empty_like(x);
    run_forward(shape, weights, kept, output);

    variable_list saved(weights.begin(), weights.end());
    saved.insert(saved.end(), kept.begin(), kept.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["heads"] = options.heads;
    context->saved_data["eps"] = options.eps;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output) {
    if (at::GradMode::is_enabled()) {
      throw UsageError(
          "TinyTransformer: a gradient of its gradient is asked for, which a block does not have; hint: "
          "backward without create_graph, or weights of float64");
    }
    const auto saved = context->get_saved_variables();
    BlockTensors weights;
    KeptTensors kept;
    std::copy_n(saved.begin(), kWeights, weights.begin());
    std::copy_n(saved.begin() + kWeights, static_cast<size_t>(kKept), kept.begin());
    const BlockShape shape =
        shape_of(kept[kX], weights[kernels::kMlpInWeight].size(0), context->saved_data["heads"].toInt(),
                 context->saved_data["eps"].toDouble());
    variable_list gradients = {at::empty_like(kept[kX])};
    run_backward(shape, weights, kept, output[0].contiguous(), gradients);
    gradients.emplace_back();  // of the options
    return gradients;
  }

 private:
  static void run_forward(const BlockShape& shape, const BlockTensors& weights, const KeptTensors& kept,
                          const at::Tensor& output) {
    BlockTensors columns;
    for (const int matrix :
         {kernels::kQkvWeight, kernels::kOutWeight, kernels::kMlpInWeight, kernels::kMlpOutWeight}) {
      const at::Tensor& weight = weights[static_cast<size_t>(matrix)];
      at::Tensor& to = columns[static_cast<size_t>(matrix)];
      to = at::empty({weight.size(1), weight.size(0)}, weight.options());
      kernels::transpose(floats_of(weight), weight.size(0), weight.size(1), floats_of(to));
    }
    const auto rows = pointers(weights), transposed = pointers(columns);
    const int64_t samples = output.size(0);
    on_parts(part_count(samples), samples, shape, [&](int64_t, int64_t begin, int64_t end, float* scratch) {
      for (int64_t i = begin; i < end; ++i) {
        kernels::block_forward(shape, rows, transposed, sample_of(kept, i), of_sample(output, i), scratch);
      }
    });
  }

  /// Sets gradients[0], of x, and appends those of the weights.
  static void run_backward(const BlockShape& shape, const BlockTensors& weights, const KeptTensors& kept,
                           const at::Tensor& output, variable_list& gradients) {
    const int64_t samples = output.size(0), parts = part_count(samples);
    const auto rows = pointers(weights);
    const at::Tensor input = gradients[0];
    // A sum of each part's own: threads do not add to the same numbers.
    std::vector<BlockTensors> sums(static_cast<size_t>(parts));
    for (auto& part : sums) {
      for (size_t i = 0; i < kWeights; ++i) part[i] = at::zeros(weights[i].sizes(), weights[i].options());
    }
    on_parts(parts, samples, shape, [&](int64_t part, int64_t begin, int64_t end, float* scratch) {
      kernels::BlockGradients to;
      std::transform(sums[static_cast<size_t>(part)].begin(), sums[static_cast<size_t>(part)].end(),
                     to.begin(), floats_of);
      for (int64_t i = begin; i < end; ++i) {
        kernels::block_backward(shape, rows, sample_of(kept, i), of_sample(output, i), of_sample(input, i),
                                to, scratch);
      }
    });
    for (size_t i = 0; i < kWeights; ++i) {
      for (size_t part = 1; part < sums.size(); ++part) sums[0][i].add_(sums[part][i]);
      gradients.push_back(sums[0][i]);
    }
  }
};

}  // namespace

bool can_fuse(const at::Tensor& x, const BlockTensors& weights) {
  const auto fits = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() && tensor.is_contiguous();
  };
  return x.dim() == 3 && x.scalar_type() == at::kFloat && x.device().is_cpu() && x.numel() > 0 &&
         x.size(2) % kernels::kPadding == 0 &&
         weights[kernels::kMlpInWeight].size(0) % kernels::kPadding == 0 &&
         std::all_of(weights.begin(), weights.end(), fits);
}

at::Tensor fused_block(const at::Tensor& x, const BlockTensors& weights, const BlockOptions& options) {
  const auto& w = weights;
  return FusedBlock::apply(x, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11],
                           options);
}

}  // namespace lockstep::train
