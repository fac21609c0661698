#include "lockstep/parallel/pipeline/pipeline.h"

#include "parallel/pipeline/runtime.h"

namespace lockstep {

Pipeline::Pipeline(std::vector<AnyModel> chunks, const Communicator& comm, Loss loss,
                   const PipelineOptions& options)
    : runtime_(std::make_shared<pipeline::Runtime>(chunks, comm, std::move(loss), options)) {}

at::Tensor Pipeline::step(const at::Tensor& input, const at::Tensor& target, double scale) {
  return runtime_->run(/*trains=*/true, input, target, scale);
}

at::Tensor Pipeline::evaluate(const at::Tensor& input, const at::Tensor& target) {
  return runtime_->run(/*trains=*/false, input, target, 1);
}

const plan::PipelinePlan& Pipeline::plan() const {
  return runtime_->plan();
}

const PipelineReport& Pipeline::report() const {
  return runtime_->report();
}

}  // namespace lockstep
