#pragma once

#include <string>
#include <vector>

#include "launch/environment.h"

namespace lockstep::cli {

/// What `lockstep-torch probe` found out about LibTorch in some environment.
struct TorchProbe {
  bool ok = false;
  std::string problem = {};  ///< Why not, one line; ends with the signal's name if one ended it.
  bool missing = false;      ///< There is no lockstep-torch.
  std::string version = {};
  std::string cpu_capability = {};  ///< The vector instructions of LibTorch's own kernels, in its words.
  int threads = 0;
  int blas_threads = 0;           ///< 0 when the BLAS is not OpenBLAS.
  std::string blas_library = {};  ///< The file that multiplies matrices.
  std::string blas_core = {};     ///< OpenBLAS's kernels; "" when the BLAS is another one.
  double gflops = 0;              ///< Of a float product on one core.
};

/// Starts lockstep-torch, which lies beside this program, and waits for it: one to two seconds.
TorchProbe probe_torch(const launch::Environment& environment);

/// Reads what `lockstep-torch probe` printed. Throws Error for anything else.
TorchProbe parse_torch_probe(const std::string& json);

}  // namespace lockstep::cli
