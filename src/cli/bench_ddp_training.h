#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "cli/bench_ddp_data.h"
#include "cli/bench_ddp_optimizer.h"
#include "lockstep/comms/communicator.h"

namespace lockstep::cli {

/// Where a step's time went; of a rank.
struct DdpStepTimes {
  double forward_us = 0;
  double backward_us = 0;  ///< Without what follows.
  double exposed_us = 0;   ///< Communication after backward had computed its last gradient.
  double optimizer_us = 0;

  DdpStepTimes& operator+=(const DdpStepTimes& other);
};

/// A model in training, in one of the ways that the benchmark compares.
class DdpTraining {
 public:
  DdpTraining() = default;
  DdpTraining(const DdpTraining&) = delete;
  DdpTraining& operator=(const DdpTraining&) = delete;
  virtual ~DdpTraining() = default;

  /// Trains on the next batch of `data`; its loss before that. Adds to `times`.
  at::Tensor step(const DdpData& data, DdpStepTimes& times);
  /// The same on every rank as long as their weights are.
  double sum_of_weights() const;
  /// Of each bucket of gradients, once the first step is done; none where nothing is sent.
  virtual std::vector<int64_t> bucket_bytes() const { return {}; }
  /// Returns when all ranks are here.
  virtual void meet() {}

 protected:
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  virtual double exposed_us() const { return 0; }
  virtual std::vector<at::Tensor> parameters() const = 0;
  DdpOptimizer optimizer_;

 private:
  int64_t steps_ = 0;
};

/// By DistributedDataParallel.
std::unique_ptr<DdpTraining> make_data_parallel(const DdpBench& bench, const FullMLP& model,
                                                const Communicator& comm);

/// In one process, by what LibTorch has.
std::unique_ptr<DdpTraining> make_single(const DdpBench& bench, const FullMLP& model);

}  // namespace lockstep::cli
