#include "lockstep/train/optim/clip_grad_norm.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "lockstep/error.h"
#include "train/optim/kernels.h"

namespace lockstep {

namespace {

using train::optim::kNormBlock;

constexpr int64_t kBlocksWorthAThread = 8;

/// The p-norm of many values without its root, of values that are seen block by block.
class Norm {
 public:
  explicit Norm(double type) : type_(type) {}

  template <typename T>
  double of_block(const T* values, int64_t begin, int64_t end) const {
    if (type_ == 2) return train::optim::kernels().of<T>().sum_of_squares(values, begin, end);
    double total = 0;
    for (int64_t i = begin; i < end; ++i)
      total = join(total, power(std::abs(static_cast<double>(values[i]))));
    return total;
  }

  double join(double left, double right) const {
    if (!std::isinf(type_)) return left + right;
    return std::isnan(left) || left >= right ? left : right;
  }

  double root(double total) const {
    if (std::isinf(type_) || type_ == 1) return total;
    return type_ == 2 ? std::sqrt(total) : std::pow(total, 1 / type_);
  }

 private:
  double power(double size) const { return std::isinf(type_) || type_ == 1 ? size : std::pow(size, type_); }

  double type_;
};

template <typename T>
void add_blocks(const Norm& norm, const at::Tensor& gradient, double& total) {
  const int64_t count = gradient.numel();
  const T* const values = gradient.data_ptr<T>();
  std::vector<double> blocks(static_cast<size_t>((count + kNormBlock - 1) / kNormBlock));
  at::parallel_for(0, std::ssize(blocks), kBlocksWorthAThread, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      blocks[static_cast<size_t>(block)] =
          norm.of_block(values, block * kNormBlock, std::min(count, (block + 1) * kNormBlock));
    }
  });
  for (const double block : blocks) total = norm.join(total, block);
}

/// In the order of indices, wherever the elements lie.
void add_gradient(const Norm& norm, const at::Tensor& gradient, double& total) {
  if (gradient.scalar_type() == at::kDouble) return add_blocks<double>(norm, gradient.contiguous(), total);
  add_blocks<float>(norm, gradient.to(at::kFloat).contiguous(), total);
}

std::vector<at::Tensor> find_gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  std::unordered_set<const void*> known;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const at::Tensor& gradient = parameters[index].grad();
    if (!gradient.defined() || !known.insert(parameters[index].unsafeGetTensorImpl()).second) continue;
    const bool is_dense = gradient.layout() == at::kStrided;
    if (!is_dense || !gradient.device().is_cpu() || !at::isFloatingType(gradient.scalar_type())) {
      throw UsageError(fmt::format(
          "clip_grad_norm_: the gradient of parameter {}, of shape [{}], is {}; hint: gradients must be "
          "dense, "
          "on the CPU and of real numbers",
          index, fmt::join(gradient.sizes(), ", "),
          is_dense ? fmt::format("{} on {}", at::toString(gradient.scalar_type()), gradient.device().str())
                   : "not dense"));
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

}  // namespace

double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  if (!(max_norm >= 0)) {
    throw UsageError(fmt::format("clip_grad_norm_: max_norm is {}; hint: it must be 0 or more", max_norm));
  }
  if (!(norm_type > 0)) {
    throw UsageError(
        fmt::format("clip_grad_norm_: norm_type is {}; hint: it must be above 0, or infinity", norm_type));
  }
  const c10::AutoGradMode without_grad(false);
  const auto gradients = find_gradients(parameters);
  const Norm norm(norm_type);
  double total = 0;
  for (const auto& gradient : gradients) add_gradient(norm, gradient, total);
  const double length = norm.root(total);
  if (error_if_nonfinite && !std::isfinite(length)) {
    throw Error(
        fmt::format("clip_grad_norm_: the norm of {} gradients is {}; hint: look for the parameter whose "
                    "gradient is not finite, or lower the learning rate",
                    gradients.size(), std::abs(length)));
  }
  const double factor = max_norm / (length + 1e-6);
  if (factor >= 1) return length;
  for (const auto& gradient : gradients) gradient.mul_(factor);
  return length;
}

double clip_grad_norm_(const at::Tensor& parameter, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  return clip_grad_norm_(std::vector<at::Tensor>{parameter}, max_norm, norm_type, error_if_nonfinite);
}

}  // namespace lockstep
