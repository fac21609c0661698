#pragma once

#include "lockstep/parallel/pipeline/partition.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/train/models/full_mlp.h"
#include "lockstep/train/models/sharded_mlp.h"
#include "parallel/ddp_support.h"

// What tests of pipelines have in common.
namespace lockstep::test {

/// A rank's stages of a model that is cut by the number of layers.
inline std::vector<AnyModel> chunks_of(const torch::nn::Sequential& model, const Communicator& comm,
                                       int chunks = 1) {
  const int stages = comm.world_size() * chunks;
  const Cuts cuts = cut_by_count(static_cast<int64_t>(model->size()), stages);
  std::vector<AnyModel> all;
  for (int stage = comm.rank(); stage < stages; stage += comm.world_size())
    all.emplace_back(take_stage(model, cuts, stage));
  return all;
}

inline torch::nn::Sequential mlp(int64_t dim, int64_t depth, uint64_t seed = 5) {
  return torch::nn::Sequential(FullMLP(dim, depth, seed)->layers());
}

/// Parameters of all stages of a rank, by their names in the model.
inline std::map<std::string, torch::Tensor> parameters_of(const std::vector<AnyModel>& chunks) {
  std::map<std::string, torch::Tensor> all;
  for (const auto& chunk : chunks) {
    for (const auto& item : chunk->named_parameters()) all[item.key()] = item.value();
  }
  return all;
}

}  // namespace lockstep::test
