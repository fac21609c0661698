#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/comms/tensors.h"
#include "lockstep/parallel/pipeline/partition.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/train/models/full_mlp.h"
#include "parallel/random_tensor.h"

// Models that tests of pipelines cut; without GoogleTest, for programs that are not tests themselves.
namespace lockstep::test {

inline constexpr int64_t kDim = 5;
inline constexpr int64_t kDepth = 7;  // with the ReLUs, 13 layers: nothing divides
inline constexpr int64_t kSmallDim = 4;

/// A rank's stages of a model.
inline std::vector<AnyModel> chunks_of(const torch::nn::Sequential& model, const Communicator& comm,
                                       const Cuts& cuts) {
  std::vector<AnyModel> all;
  for (int stage = comm.rank(); stage + 1 < static_cast<int>(cuts.size()); stage += comm.world_size())
    all.emplace_back(take_stage(model, cuts, stage));
  return all;
}

/// The same, cut by the number of layers.
inline std::vector<AnyModel> chunks_of(const torch::nn::Sequential& model, const Communicator& comm,
                                       int chunks = 1) {
  return chunks_of(model, comm,
                   cut_by_count(static_cast<int64_t>(model->size()), comm.world_size() * chunks));
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

/// Words in on the first rank, words out on the last: one weight for both.
struct EmbeddingImpl : torch::nn::Module {
  EmbeddingImpl(int64_t words, int64_t dim) {
    weight = register_parameter("weight", random(9, {words, dim}));
  }
  torch::Tensor forward(const torch::Tensor& words) { return torch::embedding(weight, words); }
  torch::Tensor weight;
};
TORCH_MODULE(Embedding);
struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const torch::Tensor& from) { weight = register_parameter("weight", from); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::matmul(x, weight.t()); }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

}  // namespace lockstep::test
