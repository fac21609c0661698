#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/mse_loss.h>

#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/parallel/ddp/bucketing.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"

// One training step in several ways, from the simplest to the one to use. All of them give the gradient of
// the mean squared error over the whole batch; the simple ones stay as oracle and lesson.
namespace lockstep {

/// Leaves the mean of all ranks' gradients in `.grad`, by one all-reduce for each parameter. A gradient that
/// is not there counts as an error: ranks would call for different ones.
void average_gradients(const torch::nn::Module& module, DataParallelComms& comms);

/// Makes the gradients of two copies of a model their mean, in both.
void average_gradients(const torch::nn::Module& first, const torch::nn::Module& second);

/// Forward and backward on this rank's share of the batch, then the mean of each gradient, one after the
/// other, then the optimizer. Nothing overlaps. Returns this rank's loss.
template <typename Model, typename Optimizer>
at::Tensor naive_data_parallel_step(Model& model, DataParallelComms& comms, const at::Tensor& input,
                                    const at::Tensor& target, Optimizer& optimizer) {
  optimizer.zero_grad();
  const at::Tensor loss = at::mse_loss(model->forward(input), target);
  loss.backward();
  average_gradients(*model, comms);
  optimizer.step();
  return loss;
}

/// The same with DistributedDataParallel: gradients are averaged within backward().
template <typename Impl, typename Optimizer>
at::Tensor ddp_step(DistributedDataParallel<Impl>& ddp, const at::Tensor& input, const at::Tensor& target,
                    Optimizer& optimizer) {
  optimizer.zero_grad();
  const at::Tensor loss = at::mse_loss(ddp.forward(input), target);
  loss.backward();
  optimizer.step();
  return loss;
}

/// Two copies of a model in one process, each on half of the batch: data parallel training without any
/// communication. They start equal and stay so. Returns the loss over the whole batch.
template <typename Model, typename Optimizer>
at::Tensor manual_data_parallel_step(Model& first, Model& second, const at::Tensor& input,
                                     const at::Tensor& target, Optimizer& first_optimizer,
                                     Optimizer& second_optimizer) {
  first_optimizer.zero_grad();
  second_optimizer.zero_grad();
  const auto inputs = input.chunk(2);
  const auto targets = target.chunk(2);
  const at::Tensor first_loss = at::mse_loss(first->forward(inputs[0]), targets[0]);
  const at::Tensor second_loss = at::mse_loss(second->forward(inputs[1]), targets[1]);
  first_loss.backward();
  second_loss.backward();
  average_gradients(*first, *second);
  first_optimizer.step();
  second_optimizer.step();
  return (first_loss.detach() + second_loss.detach()) / 2;
}

/// Hooks on a model that all-reduce each gradient by itself as soon as backward() has computed it; they are
/// gone with what is returned. DistributedDataParallel groups gradients and does more.
[[nodiscard]] BucketedDDPHooks register_ddp_hooks(const AnyModel& model, DataParallelComms& comms);

}  // namespace lockstep
