#include "train/models/kernels/attention_loops.h"
#include "train/models/kernels/kernels.h"

namespace lockstep::train::kernels {

#if defined(__x86_64__) && !defined(LOCKSTEP_PORTABLE)

namespace {

#define LOCKSTEP_KERNEL [[gnu::target("avx2,fma")]]

using Wide = Simd<32, 4>;

LOCKSTEP_KERNEL void attention_forward(const Head& head, const AttentionInput& input, float* weights,
                                       float* output, int64_t output_stride, float* scratch) {
  attention_forward_loop<Wide>(head, input, weights, output, output_stride, scratch);
}

LOCKSTEP_KERNEL void attention_backward(const Head& head, const AttentionInput& input, const float* weights,
                                        const float* output_gradient, int64_t output_stride,
                                        const AttentionGradients& gradients, float* scratch) {
  attention_backward_loop<Wide>(head, input, weights, output_gradient, output_stride, gradients, scratch);
}

}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kKernels{
      .name = "avx2", .attention_forward = attention_forward, .attention_backward = attention_backward};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kKernels : nullptr;
}

#else

const Kernels* avx2_kernels() {
  return nullptr;
}

#endif

}  // namespace lockstep::train::kernels
