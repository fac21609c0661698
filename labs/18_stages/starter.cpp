// Lesson 18: cut the graph.
//
// Cut a model of `layers` layers into `stages` parts, one for each rank, and train it as if it were whole:
// hand the activation to the next stage, and the gradient back to the one before.
//
// What you have: lab::make_layer(number) -> lab::Layer, layer.forward(x); lab::LayerRange{begin, end};
//                lab::Stage{layers, input, output}, a std::vector<lab::Layer> and two tensors;
//                tensor.detach(), tensor.requires_grad_(), output.backward(gradient), input.grad();
//                rank.rank(), rank.world_size(), lab::send_tensor(rank, tensor, to), lab::recv_tensor(rank,
//                from), lab::mean_squared_error(output, target) -> lab::LossAndGradient{loss, gradient}, a
//                float and the gradient of `output`.
// The lesson:    lockstep lab read 18
// Your verdict:  lockstep lab check 18
// If stuck:      lockstep lab hint 18
#include "lab/layers.h"

namespace my_work {

/// Which layers a stage has: from `begin` on, up to `end`, without that one. All stages together have each
/// layer once, in order, and their numbers of layers differ by one at most.
lab::LayerRange layers_of(int layers, int stage, int stages) {
  (void)stage;
  (void)stages;
  return {0, layers};
}

/// A stage with layers of its own. lab::make_layer(number) makes layer `number` of the whole model.
lab::Stage make_stage(int layers, int stage, int stages) {
  (void)layers;
  (void)stage;
  (void)stages;
  return {};
}

/// Runs the stage's layers on what arrived, and returns the output. Keeps in stage.input and stage.output,
/// and nowhere else, what backward needs. The graph of this stage begins here: at a leaf of its own that
/// wants a gradient. What arrived stays as it is.
torch::Tensor stage_forward(lab::Stage& stage, const torch::Tensor& arrived) {
  (void)stage;
  return arrived;
}

/// Goes back through this stage's graph, once, which frees it. Takes the gradient of its output, returns the
/// gradient of its input.
torch::Tensor stage_backward(lab::Stage& stage, const torch::Tensor& gradient) {
  (void)stage;
  return gradient;
}

/// One step on all ranks, stage r on rank r: the whole batch forward through all stages, then back. `input`
/// is there on the first rank alone, `target` on the last one alone, which returns the loss. Others return 0.
/// Between neighbours one message goes up and one comes back, as large as the activation. Leaves the
/// gradients in the layers: the check clears them before a step, and changes the weights after.
float naive_step(lab::Rank& rank, lab::Stage& stage, const torch::Tensor& input,
                 const torch::Tensor& target) {
  (void)rank;
  (void)stage;
  (void)input;
  (void)target;
  return 0;
}

}  // namespace my_work
