#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comms/communicator.h"
#include "lockstep/parallel/ddp/any_model.h"

namespace lockstep::pipeline {

/// A stage that draws random numbers by layer: what a layer draws depends on the seed and the layer's name in
/// the model, not on which layers ran before it in this process.
class StageLayers {
 public:
  /// `salt`: 0 if its layers' names are its own; else a number that is, and that counts beside them.
  StageLayers(const AnyModel& model, uint64_t salt);

  /// Seeds torch's default generator for each layer, while the stage is in training mode.
  at::Tensor forward(const at::Tensor& input, uint64_t seed) const;
  const AnyModel& model() const { return model_; }

 private:
  AnyModel model_;
  uint64_t salt_;
  std::vector<uint64_t> names_;  ///< Of the layers of a Sequential, hashed; none for any other module.
};

/// A rank's stages. Those that were not cut from one Sequential, and so may have layers of the same name, are
/// told apart by their number: no two layers draw the same. All ranks call it.
std::vector<StageLayers> tell_apart(const std::vector<AnyModel>& chunks, Communicator& comm);

}  // namespace lockstep::pipeline
