#pragma once

#include <string>

namespace lockstep::train {

/// Which of LibTorch's kernels run here, such as "AVX2": they decide bits.
std::string cpu_capability();

}  // namespace lockstep::train
