#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "lab/world.h"

/// What lessons on pipelines run: a deep model of small layers, and messages that carry tensors.
namespace lab {

/// What goes into every layer and comes out of it: [batch, width]. Checks change it between runs.
struct Shape {
  int64_t batch = 4;  ///< Samples.
  int64_t width = 8;
};
Shape& shape();

/// One layer of the model: tanh(x W^T + b). On the world's clock its forward takes kForwardUs, its backward
/// kBackwardUs.
struct Layer {
  torch::Tensor weight;  ///< [width, width]
  torch::Tensor bias;    ///< [width]

  /// [batch, width] -> [batch, width]
  torch::Tensor forward(const torch::Tensor& input) const;
};

constexpr double kForwardUs = 1;
constexpr double kBackwardUs = 2;

/// Layer `number` of the whole model, counted from 0: its weights follow from that number alone.
Layer make_layer(int number);

/// Layers `begin` to `end` of the whole model, without the latter.
struct LayerRange {
  int begin = 0;
  int end = 0;
};

/// A rank's part of the model, and what it keeps between its forward and its backward.
struct Stage {
  std::vector<Layer> layers = {};
  torch::Tensor input = {};   ///< Where its graph begins.
  torch::Tensor output = {};  ///< Where its graph ends.
};

/// A loss, and its gradient with respect to the output.
struct LossAndGradient {
  float loss = 0;
  torch::Tensor gradient = {};
};
LossAndGradient mean_squared_error(const torch::Tensor& output, const torch::Tensor& target);

/// One message: the tensor's floats. What arrives has the shape [batch, width] and no graph.
void send_tensor(Rank& rank, const torch::Tensor& tensor, int to);
torch::Tensor recv_tensor(Rank& rank, int from);

/// For checks: runs `body` as this rank's code. Layers that it runs, forward and back, take time on the
/// rank's clock, told before its next message and at its end; what LibTorch throws is thrown on in plain
/// words.
void run_on_clock(Rank& rank, const std::function<void()>& body);
/// The same for code that has no rank, and no clock.
void run_plainly(const std::function<void()>& body);

}  // namespace lab
