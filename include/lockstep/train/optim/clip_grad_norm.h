#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

/// Scales all gradients by one factor so that the norm of them all, taken as one vector, is at most
/// `max_norm` (as torch::nn::utils::clip_grad_norm_: the factor is max_norm / (norm + 1e-6), if that is below
/// 1). Returns the norm before that; 0 if there is no gradient.
///
/// A parameter that is given twice (a tied weight) counts once and is scaled once. The norm is summed in
/// double, block by block in the parameters' order: its bits depend on shapes and values alone, not on
/// threads, CPU or where gradients lie. `norm_type` is the p of a p-norm, above 0, or infinity. A norm that
/// is not finite makes the gradients NaN or 0, or throws Error before that if `error_if_nonfinite`.
///
/// Throws UsageError, naming the parameter by index, if a gradient is not dense or not of real numbers, and
/// if a number is out of range. To clip by the norm over all ranks, call it when gradients are reduced.
double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);

/// The same for one parameter.
double clip_grad_norm_(const at::Tensor& parameter, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);

}  // namespace lockstep
