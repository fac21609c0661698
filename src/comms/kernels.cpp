#include "comms/kernels.h"

#include "comms/kernel_loops.h"
#include "comms/kernels_avx2.h"

namespace lockstep::comms {

namespace {

struct Portable {
  template <FoldOp op, typename T>
  static void fold(const void* a, const void* b, void* c, void* d, int64_t count, double factor) {
    fold_loop<op, T>(a, b, c, d, count, factor);
  }
};

template <typename Half>
void widen_all(const Half* from, float* to, int64_t count) {
  widen_loop(from, to, count);
}

template <typename Half>
void narrow_all(const float* from, Half* to, int64_t count) {
  narrow_loop(from, to, count);
}

}  // namespace

const Kernels& portable_kernels() {
  static constexpr Kernels kPortable{.fold = fold_of<Portable>,
                                     .widen_float16 = widen_all<Float16>,
                                     .widen_bfloat16 = widen_all<BFloat16>,
                                     .narrow_float16 = narrow_all<Float16>,
                                     .narrow_bfloat16 = narrow_all<BFloat16>,
                                     .streamed_fold = nullptr,
                                     .stream = nullptr,
                                     .finish_streams = nullptr};
  return kPortable;
}

const Kernels& kernels() {
  static const Kernels* const fastest = avx2_kernels() != nullptr ? avx2_kernels() : &portable_kernels();
  return *fastest;
}

}  // namespace lockstep::comms
