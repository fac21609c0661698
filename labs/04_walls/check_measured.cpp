#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "04_walls/measured.h"

namespace lab::walls {

namespace {

/// What is allocated now, and the most that ever was.
struct Meter {
  std::int64_t now = 0;
  std::int64_t peak = 0;

  void move(std::int64_t bytes) {
    now += bytes;
    peak = std::max(peak, now);
  }
};

/// An allocator that tells its meter.
template <typename T>
struct Counting {
  using value_type = T;
  Meter* meter;

  T* allocate(std::size_t n) {
    meter->move(static_cast<std::int64_t>(n * sizeof(T)));
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* pointer, std::size_t n) {
    meter->move(-static_cast<std::int64_t>(n * sizeof(T)));
    std::allocator<T>().deallocate(pointer, n);
  }
  bool operator==(const Counting&) const = default;
};

using Buffer = std::vector<float, Counting<float>>;

/// A linear layer's weights [out, in] and behind them its bias [out], with what belongs to each of them.
struct Layer {
  std::size_t in, out;
  Buffer weights, gradients, mean, square;
};

class Net {
 public:
  Net(std::span<const std::int64_t> widths, std::size_t batch) : batch_(batch) {
    for (const auto width : widths) widths_.push_back(static_cast<std::size_t>(width));
    for (std::size_t k = 0; k + 1 < widths_.size(); ++k) {
      const std::size_t in = widths_[k], out = widths_[k + 1];
      layers_.push_back({in, out, buffer(in * out + out), buffer(0), buffer(0), buffer(0)});
      const double bound = std::sqrt(6.0 / static_cast<double>(in));
      for (std::size_t i = 0; i < in * out; ++i)
        layers_.back().weights[i] = static_cast<float>(bound * next_number());
    }
  }

  Meter& meter() { return meter_; }

  std::int64_t parameters() const {
    std::size_t sum = 0;
    for (const auto& layer : layers_) sum += layer.weights.size();
    return static_cast<std::int64_t>(sum);
  }

  /// Keeps the input and every layer's output.
  void forward() {
    activations_.push_back(buffer(batch_ * widths_[0]));
    for (std::size_t i = 0; i < activations_[0].size(); ++i)
      activations_[0][i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
    for (std::size_t k = 0; k < layers_.size(); ++k) {
      const Layer& layer = layers_[k];
      activations_.push_back(buffer(batch_ * layer.out));
      const auto &x = activations_[k], &w = layer.weights;
      auto& y = activations_[k + 1];
      const bool is_last = k + 1 == layers_.size();
      for (std::size_t b = 0; b < batch_; ++b) {
        for (std::size_t o = 0; o < layer.out; ++o) {
          float sum = w[layer.in * layer.out + o];
          for (std::size_t i = 0; i < layer.in; ++i) sum += w[o * layer.in + i] * x[b * layer.in + i];
          y[b * layer.out + o] = is_last ? sum : std::max(sum, 0.0F);
        }
      }
    }
  }

  /// The target is 1 everywhere. Frees activations layer by layer, as autograd does.
  void backward() {
    const std::size_t count = activations_.back().size();
    Buffer delta = buffer(count);
    for (std::size_t i = 0; i < count; ++i) {
      const float error = activations_.back()[i] - 1;
      delta[i] = 2 * error / static_cast<float>(count);
    }
    for (std::size_t k = layers_.size(); k-- > 0;) {
      Layer& layer = layers_[k];
      if (layer.gradients.empty()) layer.gradients = buffer(layer.weights.size());
      const auto &x = activations_[k], &w = layer.weights;
      auto& g = layer.gradients;
      std::fill(g.begin(), g.end(), 0.0F);
      Buffer before = buffer(k == 0 ? 0 : batch_ * layer.in);
      for (std::size_t b = 0; b < batch_; ++b) {
        for (std::size_t o = 0; o < layer.out; ++o) {
          const float d = delta[b * layer.out + o];
          g[layer.in * layer.out + o] += d;
          for (std::size_t i = 0; i < layer.in; ++i) {
            g[o * layer.in + i] += d * x[b * layer.in + i];
            if (k > 0 && x[b * layer.in + i] > 0) before[b * layer.in + i] += d * w[o * layer.in + i];
          }
        }
      }
      delta = std::move(before);
      activations_.pop_back();
    }
    activations_.clear();
  }

  void adam(int step) {
    const float rate = 1e-3F, first = 0.9F, second = 0.999F;
    const auto correction = [&](float decay) { return 1 - std::pow(decay, static_cast<float>(step)); };
    for (auto& layer : layers_) {
      if (layer.mean.empty()) layer.mean = buffer(layer.weights.size());
      if (layer.square.empty()) layer.square = buffer(layer.weights.size());
      for (std::size_t i = 0; i < layer.weights.size(); ++i) {
        const float g = layer.gradients[i];
        layer.mean[i] = first * layer.mean[i] + (1 - first) * g;
        layer.square[i] = second * layer.square[i] + (1 - second) * g * g;
        layer.weights[i] -= rate * (layer.mean[i] / correction(first)) /
                            (std::sqrt(layer.square[i] / correction(second)) + 1e-8F);
      }
    }
  }

 private:
  Buffer buffer(std::size_t count) { return Buffer(count, 0.0F, Counting<float>{&meter_}); }

  /// From -1 to 1, the same every time.
  double next_number() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 11) / 9007199254740992.0 * 2 - 1;
  }

  Meter meter_;  // before all buffers, which tell it when they go
  std::uint64_t state_ = 1;
  std::size_t batch_;
  std::vector<std::size_t> widths_;
  std::vector<Layer> layers_;
  std::vector<Buffer> activations_;
};

}  // namespace

Measured train_and_measure(std::span<const std::int64_t> widths, std::int64_t batch, int steps) {
  Net net(widths, static_cast<std::size_t>(batch));
  Measured measured;
  measured.parameters = net.parameters();
  measured.model.weights = net.meter().now;
  for (int step = 1; step <= steps; ++step) {
    const std::int64_t before = net.meter().now;
    net.forward();
    measured.activations = net.meter().now - before;
    net.backward();
    if (step == 1) measured.model.gradients = net.meter().now - before;
    const std::int64_t without_state = net.meter().now;
    net.adam(step);
    if (step == 1) measured.model.optimizer = net.meter().now - without_state;
  }
  measured.peak = net.meter().peak;
  return measured;
}

}  // namespace lab::walls
