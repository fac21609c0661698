#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "lockstep/parallel/pipeline/pipeline.h"
#include "parallel/pipeline/stage_layers.h"
#include "parallel/pipeline/step.h"
#include "parallel/pipeline/tied_weights.h"

namespace lockstep::pipeline {

/// What lasts from step to step: the plans, the forms of what goes between stages, the tied weights.
class Runtime {
 public:
  Runtime(const std::vector<AnyModel>& chunks, const Communicator& comm, Pipeline::Loss loss,
          const PipelineOptions& options);

  at::Tensor run(bool trains, const at::Tensor& input, const at::Tensor& target, double scale);

  const plan::PipelinePlan& plan() const { return plan_; }
  const PipelineReport& report() const { return report_; }

 private:
  /// What decides the forms between stages: whether it trains, and the hash of the input's form.
  using Key = std::tuple<bool, int64_t>;
  struct Agreed {
    int64_t samples = 0;
    Key key;
  };

  bool is_first() const { return comm_.rank() == 0; }
  bool is_last() const { return comm_.rank() + 1 == comm_.world_size(); }
  /// Ranks tell each other what they are about to run; the same error on all if that does not fit.
  Agreed agree(bool trains, const at::Tensor& input, const at::Tensor& target);

  const PipelineOptions options_;
  Communicator comm_;  ///< Of our own: the user's calls do not mix with ours.
  const Pipeline::Loss loss_;
  std::vector<StageLayers> chunks_;
  plan::PipelinePlan plan_, forward_plan_;
  TiedWeights tied_;
  std::map<Key, Forms> forms_;
  int64_t steps_ = 0, evaluations_ = 0;
  PipelineReport report_;
};

}  // namespace lockstep::pipeline
