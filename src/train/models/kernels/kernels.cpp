#include "train/models/kernels/kernels.h"

#include "train/models/kernels/attention_loops.h"

namespace lockstep::train::kernels {

namespace {

using Portable = Simd<16, 4>;

void attention_forward(const Head& head, const AttentionInput& input, float* weights, float* output,
                       int64_t output_stride, float* scratch) {
  attention_forward_loop<Portable>(head, input, weights, output, output_stride, scratch);
}

void attention_backward(const Head& head, const AttentionInput& input, const float* weights,
                        const float* output_gradient, int64_t output_stride,
                        const AttentionGradients& gradients, float* scratch) {
  attention_backward_loop<Portable>(head, input, weights, output_gradient, output_stride, gradients, scratch);
}

}  // namespace

const Kernels& portable_kernels() {
  static constexpr Kernels kPortable{
      .name = "portable", .attention_forward = attention_forward, .attention_backward = attention_backward};
  return kPortable;
}

const Kernels& kernels() {
  static const Kernels& fastest = avx2_kernels() != nullptr ? *avx2_kernels() : portable_kernels();
  return fastest;
}

}  // namespace lockstep::train::kernels
