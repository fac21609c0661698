#include "lockstep/parallel/pipeline/schedule.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/mse_loss.h>

#include <mutex>

namespace lockstep {

namespace {

/// From torch's own generator: each call draws other masks, and torch::manual_seed() decides which.
uint64_t draw_seed() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

at::Tensor step_of(const char* schedule, const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                   const at::Tensor& targets, int microbatches, const Pipeline::Loss& loss) {
  Pipeline pipeline(stage, comms.communicator(), loss,
                    {.schedule = schedule, .microbatches = microbatches, .seed = draw_seed()});
  return pipeline.step(batch, targets);
}

}  // namespace

at::Tensor mean_squared_error(const at::Tensor& output, const at::Tensor& target) {
  return at::mse_loss(output, target);
}

at::Tensor naive_pipeline_step(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                               const at::Tensor& targets, int microbatches, const Pipeline::Loss& loss) {
  return step_of("naive", stage, comms, batch, targets, microbatches, loss);
}

at::Tensor gpipe_pipeline_step(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                               const at::Tensor& targets, int microbatches, const Pipeline::Loss& loss) {
  return step_of("gpipe", stage, comms, batch, targets, microbatches, loss);
}

at::Tensor onef_oneb_pipeline_step(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                                   const at::Tensor& targets, int microbatches, const Pipeline::Loss& loss) {
  return step_of("1f1b", stage, comms, batch, targets, microbatches, loss);
}

at::Tensor naive_pipeline_step_by_hand(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                                       const at::Tensor& targets, at::IntArrayRef shape,
                                       const Pipeline::Loss& loss) {
  // Where the graph is cut: a leaf, whose gradient is what the stage before waits for.
  const at::Tensor input = comms.is_first() ? batch : comms.recv_forward(shape).requires_grad_();
  const at::Tensor output = stage.forward(input);
  at::Tensor result;
  if (comms.is_last()) {
    result = loss(output, targets);
    result.backward();
  } else {
    comms.send_forward(output);
    output.backward(comms.recv_backward(shape));
  }
  if (!comms.is_first()) comms.send_backward(input.grad());
  return result.defined() ? result.detach() : result;
}

}  // namespace lockstep
