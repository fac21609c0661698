// Lesson 5: data parallelism by hand. Two copies of a model, in one process, share a batch.
//
// Each copy goes forward and backward on its own share of the samples; then both must move by the gradient of
// the whole batch. Autograd does not help with that: backward() knows the samples that went through its copy.
//
// What you have: model->forward(input), model->parameters(), model->zero_grad(), parameter.grad(),
//                tensor.backward(), tensor.narrow(0, begin, length), tensor.size(0), tensor.item<double>(),
//                torch::mse_loss(output, target), torch::NoGradGuard.
// The lesson:    lockstep lab read 5
// Your verdict:  lockstep lab check 5
// A hint:        lockstep lab hint 5
#include <torch/torch.h>

#include "lockstep/train/models/full_mlp.h"

namespace my_work {

/// One step on one batch, [samples, dim], by two copies with equal weights; they have equal weights again
/// when it returns. The first copy takes half of the samples, rounded up, the second one the rest. Returns
/// the mean squared error over the whole batch, as it was before the weights moved.
double manual_step(lockstep::FullMLP& first, lockstep::FullMLP& second, const torch::Tensor& input,
                   const torch::Tensor& target, double lr) {
  // 1. Cut the batch in two. 7 samples are 4 and 3.
  // 2. Each copy: forget the old gradients, forward on its share, loss, backward.
  // 3. For each parameter: what is the whole batch's gradient, given the two that are there?
  // 4. Both copies move by it: w = w - lr * gradient.
  (void)first;
  (void)second;
  (void)input;
  (void)target;
  (void)lr;
  return 0;
}

}  // namespace my_work
