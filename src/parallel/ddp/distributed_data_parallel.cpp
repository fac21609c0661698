#include "lockstep/parallel/ddp/distributed_data_parallel.h"

#include "parallel/ddp/reducer.h"

namespace lockstep {

NoSync::NoSync(std::shared_ptr<ddp::Reducer> reducer) : reducer_(std::move(reducer)) {
  ++reducer_->no_syncs;
}
NoSync::~NoSync() {
  --reducer_->no_syncs;
}

DistributedDataParallelBase::DistributedDataParallelBase(std::shared_ptr<torch::nn::Module> module,
                                                         const Communicator& comm, const DdpOptions& options)
    : reducer_(std::make_shared<ddp::Reducer>(std::move(module), comm, options)) {}

void DistributedDataParallelBase::before_forward(int64_t batch) {
  reducer_->before_forward(batch);
}
void DistributedDataParallelBase::watch(at::Tensor& output, int64_t batch) {
  reducer_->watch(output, batch);
}
void DistributedDataParallelBase::join(const std::function<void()>& loop, const JoinOptions& options) {
  reducer_->join(loop, options);
}

std::vector<at::Tensor> DistributedDataParallelBase::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& each : reducer_->replica().parameters()) all.push_back(each.tensor);
  return all;
}

DdpLoggingData DistributedDataParallelBase::logging_data() const {
  return reducer_->logging_data();
}

}  // namespace lockstep
