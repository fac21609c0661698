#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/parallel/ddp/any_model.h"

namespace lockstep::pipeline {

/// A stage that draws random numbers by layer: what a layer draws depends on the seed and the layer's name in
/// the model, not on which layers ran before it in this process.
class StageLayers {
 public:
  explicit StageLayers(const AnyModel& model);

  /// Seeds torch's default generator for each layer, while the stage is in training mode.
  at::Tensor forward(const at::Tensor& input, uint64_t seed) const;
  const AnyModel& model() const { return model_; }

 private:
  AnyModel model_;
  std::vector<uint64_t> names_;  ///< Of the layers of a Sequential, hashed; none for any other module.
};

}  // namespace lockstep::pipeline
