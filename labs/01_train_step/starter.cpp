// Lesson 1: one step of training, and the loop around it.
//
// The model has 16 layers (lockstep::FullMLP). Write the step that makes it a little better: forget the old
// gradients, go forward, measure the error, go backward, move every weight. Then write the loop.
//
// What you have: model->zero_grad(), model->forward(input), model->parameters(), parameter.grad(),
//                tensor.backward(), tensor.mean(), tensor.pow(2), tensor.narrow(0, begin, length),
//                tensor.size(0), tensor.item<double>(), torch::NoGradGuard (while weights are moved),
//                torch::optim::SGD if you like.
// The lesson:    lockstep lab read 1
// Your verdict:  lockstep lab check 1
// A hint:        lockstep lab hint 1
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "lockstep/train/models/full_mlp.h"

namespace my_work {

/// One step on one batch: input and target are [samples, dim]. Returns the batch's loss, the mean squared
/// error, as it was before the weights moved.
double train_step(lockstep::FullMLP& model, const torch::Tensor& input, const torch::Tensor& target,
                  double lr) {
  // 1. Forget the gradients of the step before: backward() adds to what is there.
  // 2. Forward.
  // 3. The mean squared error: the mean over all numbers of (output - target)^2.
  // 4. Backward.
  // 5. Every parameter moves against its gradient: w = w - lr * gradient, in place.
  (void)model;
  (void)input;
  (void)target;
  (void)lr;
  return 0;
}

/// One pass over all samples, `batch` of them a step, in order; the last step takes what is left. Returns the
/// loss of every step.
std::vector<double> train(lockstep::FullMLP& model, const torch::Tensor& inputs, const torch::Tensor& targets,
                          int64_t batch, double lr) {
  std::vector<double> losses;
  (void)model;
  (void)inputs;
  (void)targets;
  (void)batch;
  (void)lr;
  return losses;
}

}  // namespace my_work
