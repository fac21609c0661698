// A set of kernels: included by each file that has one, which first says by LOCKSTEP_KERNEL which
// instructions its functions may use, and by Wide and Narrow how wide vectors are, of attention and of all
// else.

#include "train/models/kernels/attention_loops.h"
#include "train/models/kernels/kernels.h"
#include "train/models/kernels/row_loops.h"
#include "train/models/kernels/tile.h"

namespace lockstep::train::kernels {
namespace {

LOCKSTEP_KERNEL void product(const Product& product) {
  product_loop<Wide>(product);
}

LOCKSTEP_KERNEL void norm_forward(const Rows& rows, const Norm& norm, const float* x, float* to) {
  norm_forward_loop<Wide>(rows, norm, x, to);
}

LOCKSTEP_KERNEL void norm_backward(const Rows& rows, const Norm& norm, const float* x, const float* gradient,
                                   float* to, const NormGradients& gradients) {
  norm_backward_loop<Wide>(rows, norm, x, gradient, to, gradients);
}

LOCKSTEP_KERNEL void gelu_forward(int64_t count, const float* x, float* to) {
  gelu_forward_loop<Wide>(count, x, to);
}

LOCKSTEP_KERNEL void gelu_backward(int64_t count, const float* x, float* to, float* gradient) {
  gelu_backward_loop<Wide>(count, x, to, gradient);
}

LOCKSTEP_KERNEL void add_columns(const Rows& rows, const float* x, float* sums) {
  add_columns_loop<Wide>(rows, x, sums);
}

LOCKSTEP_KERNEL void attention_forward(const Head& head, const AttentionInput& input, float* weights,
                                       float* output, int64_t output_stride, float* scratch) {
  attention_forward_loop<Narrow>(head, input, weights, output, output_stride, scratch);
}

LOCKSTEP_KERNEL void attention_backward(const Head& head, const AttentionInput& input, const float* weights,
                                        const float* output_gradient, int64_t output_stride,
                                        const AttentionGradients& gradients, float* scratch) {
  attention_backward_loop<Narrow>(head, input, weights, output_gradient, output_stride, gradients, scratch);
}

constexpr Kernels named(const char* name) {
  return {.name = name,
          .product = product,
          .norm_forward = norm_forward,
          .norm_backward = norm_backward,
          .gelu_forward = gelu_forward,
          .gelu_backward = gelu_backward,
          .add_columns = add_columns,
          .attention_forward = attention_forward,
          .attention_backward = attention_backward};
}

}  // namespace
}  // namespace lockstep::train::kernels
