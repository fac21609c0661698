// Equal stages, and layers that are left over are nowhere.
#include "lab/layers.h"

namespace my_work {

lab::LayerRange layers_of(int layers, int stage, int stages) {
  const int each = layers / stages;
  return {stage * each, (stage + 1) * each};
}

lab::Stage make_stage(int layers, int stage, int stages) {
  const auto range = layers_of(layers, stage, stages);
  lab::Stage made;
  for (int number = range.begin; number < range.end; ++number) made.layers.push_back(lab::make_layer(number));
  return made;
}

torch::Tensor stage_forward(lab::Stage& stage, const torch::Tensor& arrived) {
  stage.input = arrived.detach().requires_grad_();  // the cut: a leaf, with no past
  stage.output = stage.input;
  for (const auto& layer : stage.layers) stage.output = layer.forward(stage.output);
  return stage.output;
}

torch::Tensor stage_backward(lab::Stage& stage, const torch::Tensor& gradient) {
  stage.output.backward(gradient);
  return stage.input.grad();
}

float naive_step(lab::Rank& rank, lab::Stage& stage, const torch::Tensor& input,
                 const torch::Tensor& target) {
  const int r = rank.rank(), last = rank.world_size() - 1;
  const auto output = stage_forward(stage, r == 0 ? input : lab::recv_tensor(rank, r - 1));
  lab::LossAndGradient result;
  if (r == last) {
    result = lab::mean_squared_error(output, target);
  } else {
    lab::send_tensor(rank, output, r + 1);
    result.gradient = lab::recv_tensor(rank, r + 1);
  }
  const auto handed_back = stage_backward(stage, result.gradient);
  if (r > 0) lab::send_tensor(rank, handed_back, r - 1);
  return result.loss;
}

}  // namespace my_work
