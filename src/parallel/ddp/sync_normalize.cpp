#include "parallel/ddp/sync_normalize.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"

namespace lockstep::parallel {

namespace {

/// A contiguous [N, C, ...] as N x C runs of elements.
struct Shape {
  explicit Shape(const at::Tensor& input)
      : batch(input.size(0)),
        channels(input.size(1)),
        run(batch * channels == 0 ? 0 : input.numel() / (batch * channels)) {}

  int64_t batch;
  int64_t channels;
  int64_t run;
};

constexpr int64_t kElementsWorthAThread = 32768;

int64_t grain(int64_t elements_each) {
  return std::max<int64_t>(1, kElementsWorthAThread / std::max<int64_t>(1, elements_each));
}

/// The sums of dy and of dy (x - mean) over a run. Four at a time, so that additions need not wait for each
/// other.
template <typename T>
std::pair<double, double> sum_run(const T* gradient, const T* input, double mean, int64_t count) {
  constexpr int64_t kLanes = 4;
  double plain[kLanes] = {};
  double weighted[kLanes] = {};
  const auto add = [&](int64_t lane, int64_t i) {
    const auto value = static_cast<double>(gradient[i]);
    plain[lane] += value;
    weighted[lane] += value * (static_cast<double>(input[i]) - mean);
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(lane, i + lane);
  }
  for (int64_t lane = 0; i + lane < count; ++lane) add(lane, i + lane);
  return {(plain[0] + plain[1]) + (plain[2] + plain[3]),
          (weighted[0] + weighted[1]) + (weighted[2] + weighted[3])};
}

/// [2, C], float64: of each channel the sums of dy and of dy (x - mean).
template <typename T>
at::Tensor sum_gradients(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean) {
  const Shape shape(input);
  const auto sums = at::zeros({2, shape.channels}, at::kDouble);
  double* const plain = sums.data_ptr<double>();
  double* const weighted = plain + shape.channels;
  const double* const means = mean.data_ptr<double>();
  const T* const dy = gradient.data_ptr<T>();
  const T* const x = input.data_ptr<T>();
  at::parallel_for(0, shape.channels, grain(shape.batch * shape.run), [&](int64_t begin, int64_t end) {
    for (int64_t sample = 0; sample < shape.batch; ++sample) {
      for (int64_t channel = begin; channel < end; ++channel) {
        const int64_t at = (sample * shape.channels + channel) * shape.run;
        const auto [one, other] = sum_run(dy + at, x + at, means[channel], shape.run);
        plain[channel] += one;
        weighted[channel] += other;
      }
    }
  });
  return sums;
}

/// dx = s (dy - sum(dy) / n - (x - mean) r^2 sum(dy (x - mean)) / n), with r = 1 / sqrt(variance + eps), s =
/// r weight and sums over all n values of the channel on all ranks.
template <typename T>
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& scale,
                          const at::Tensor& mean, const at::Tensor& offset, const at::Tensor& slope) {
  const Shape shape(input);
  auto result = at::empty_like(input);
  T* const dx = result.data_ptr<T>();
  const T* const dy = gradient.data_ptr<T>();
  const T* const x = input.data_ptr<T>();
  const double* const scales = scale.data_ptr<double>();
  const double* const means = mean.data_ptr<double>();
  const double* const offsets = offset.data_ptr<double>();
  const double* const slopes = slope.data_ptr<double>();
  at::parallel_for(0, shape.batch, grain(shape.channels * shape.run), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * shape.channels; row < end * shape.channels; ++row) {
      const int64_t channel = row % shape.channels;
      const T s = static_cast<T>(scales[channel]);
      const T m = static_cast<T>(means[channel]);
      const T o = static_cast<T>(offsets[channel]);
      const T k = static_cast<T>(slopes[channel]);
      for (int64_t i = row * shape.run; i < (row + 1) * shape.run; ++i)
        dx[i] = s * dy[i] + (k * (x[i] - m) + o);
    }
  });
  return result;
}

/// Carries the group to backward.
struct Carrier : torch::CustomClassHolder {
  explicit Carrier(std::shared_ptr<SyncGroup> of) : group(std::move(of)) {}
  const std::shared_ptr<SyncGroup> group;
};

struct SyncNormalize : torch::autograd::Function<SyncNormalize> {
  using Context = torch::autograd::AutogradContext;

  static at::Tensor forward(Context* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const BatchStatistics& statistics, double eps,
                            const std::shared_ptr<SyncGroup>& group) {
    const auto inverse = (statistics.variance + eps).rsqrt();
    context->save_for_backward({input, weight, statistics.mean, inverse});
    context->saved_data["count"] = statistics.count;
    context->saved_data["needs_input_gradient"] = input.requires_grad();
    context->saved_data["comm"] = c10::IValue::make_capsule(c10::make_intrusive<Carrier>(group));
    if (input.numel() == 0) return at::empty_like(input);
    const auto type = input.scalar_type();
    // Not in training: by the statistics that it is given.
    return std::get<0>(at::native_batch_norm(input, weight, bias, statistics.mean.to(type),
                                             statistics.variance.to(type), /*training=*/false, /*momentum=*/0,
                                             eps));
  }

  static torch::autograd::variable_list backward(Context* context, torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled()) {
      throw UsageError("SyncBatchNorm: backward with create_graph; hint: it cannot be differentiated twice");
    }
    const auto saved = context->get_saved_variables();
    const auto input = saved[0].contiguous();
    const at::Tensor& weight = saved[1];
    const at::Tensor& mean = saved[2];
    const at::Tensor& inverse = saved[3];
    const auto gradient = gradients[0].to(input.scalar_type()).contiguous();
    const double count = context->saved_data["count"].toDouble();
    return AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "sync_batch_norm_backward", [&] {
      const auto sums = sum_gradients<scalar_t>(gradient, input, mean);
      const auto own_bias = sums[0].to(weight.scalar_type());
      const auto own_weight = (sums[1] * inverse).to(weight.scalar_type());
      at::Tensor own_input;
      if (context->saved_data["needs_input_gradient"].toBool()) {
        const auto carrier = context->saved_data["comm"].toCapsule();
        const auto totals = at::empty_like(sums);
        static_cast<Carrier&>(*carrier).group->begin(/*is_backward=*/true).all_reduce(sums, totals);
        const auto scale = weight.to(at::kDouble) * inverse;
        const auto offset = scale * totals[0] / -count;
        const auto slope = scale * inverse * inverse * totals[1] / -count;
        own_input = input_gradient<scalar_t>(gradient, input, scale, mean, offset, slope);
      }
      return torch::autograd::variable_list{own_input, own_weight, own_bias, {}, {}, {}};
    });
  }
};

}  // namespace

BatchStatistics gather_statistics(const at::Tensor& input, Communicator& comm) {
  const int64_t channels = input.size(1);
  const int64_t count = channels == 0 ? 0 : input.numel() / channels;
  const auto own = at::zeros({2 * channels + 1}, at::kDouble);
  if (count > 0) {
    const auto [mean, variance] = at::batch_norm_update_stats(input, {}, {}, 0);
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels).copy_(variance).mul_(static_cast<double>(count));
    own[2 * channels] = static_cast<double>(count);
  }
  const auto all = at::empty({comm.world_size(), 2 * channels + 1}, at::kDouble);
  comm.all_gather(own, all);

  // In rank order, by Chan, Golub and LeVeque's formula (1979): deviations from one's own mean, and those of
  // the own mean from everybody's.
  BatchStatistics together{.mean = at::zeros({channels}, at::kDouble),
                           .variance = at::zeros({channels}, at::kDouble)};
  for (int rank = 0; rank < comm.world_size(); ++rank)
    together.count += all[rank][2 * channels].item<double>();
  if (together.count == 0) return together;
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    together.mean += all[rank].narrow(0, 0, channels) * (all[rank][2 * channels] / together.count);
  }
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    const auto distance = all[rank].narrow(0, 0, channels) - together.mean;
    together.variance +=
        all[rank].narrow(0, channels, channels) + all[rank][2 * channels] * distance * distance;
  }
  together.variance /= together.count;
  return together;
}

at::Tensor sync_normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                          const BatchStatistics& statistics, double eps,
                          const std::shared_ptr<SyncGroup>& group) {
  return SyncNormalize::apply(input, weight, bias, statistics, eps, group);
}

}  // namespace lockstep::parallel
