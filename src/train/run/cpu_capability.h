#pragma once

#include <string>

namespace lockstep::train {

/// Which of LibTorch's kernels run here, such as "AVX2": they decide bits.
std::string cpu_capability();

/// Which kernels the BLAS in this process runs, as OPENBLAS_CORETYPE names them, such as "SKYLAKEX"; the file
/// of another BLAS. They decide bits, whoever chose them.
std::string blas_kernels();
/// How many threads OpenBLAS has; "" for another BLAS.
std::string blas_threads();

}  // namespace lockstep::train
