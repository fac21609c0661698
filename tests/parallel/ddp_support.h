#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "comms/run_ranks.h"
#include "lockstep/comms/tensors.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "parallel/random_tensor.h"

// What tests of data parallel training have in common.
namespace lockstep::test {

/// Buckets of about one gradient each, sent while backward goes on.
inline DdpOptions many_buckets() {
  return {.bucket_cap_mib = 0.0005, .first_bucket_cap_mib = 0.0005, .overlap = true};
}

/// Rank r's share of a batch: every world-th row.
inline torch::Tensor shard(const torch::Tensor& batch, int rank, int world) {
  return batch.slice(0, rank, batch.size(0), world).contiguous();
}

/// Fills parameters and buffers by a generator of its own: threads share torch's.
template <typename Model>
Model filled(Model model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(seed);
  for (auto& parameter : model->parameters()) parameter.uniform_(-0.4, 0.4, generator);
  return model;
}

/// The parameters, a tied one once.
inline std::vector<torch::Tensor> each_once(const torch::nn::Module& module) {
  std::vector<torch::Tensor> once;
  for (const auto& parameter : module.parameters()) {
    const bool known = std::any_of(once.begin(), once.end(),
                                   [&](const torch::Tensor& other) { return other.is_same(parameter); });
    if (!known) once.push_back(parameter);
  }
  return once;
}

inline std::vector<torch::Tensor> copies_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

/// Element by element, within what different orders of addition give.
inline void expect_close(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected,
                         const std::string& what, double tolerance = 1e-5) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << what << ", tensor " << i;
    if (!found[i].defined()) continue;
    EXPECT_TRUE(
        torch::allclose(found[i].to(torch::kDouble), expected[i].to(torch::kDouble), tolerance, tolerance))
        << what << ", tensor " << i << ":\n"
        << found[i] << "\nexpected\n"
        << expected[i];
  }
}

inline std::vector<torch::Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : module.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

/// Whether every rank's tensors are rank 0's, bit for bit. All ranks call it.
inline bool are_equal_on_all_ranks(Communicator& comm, const std::vector<torch::Tensor>& tensors) {
  bool equal = true;
  for (const auto& tensor : tensors) {
    const auto own = tensor.detach().contiguous();
    auto first = own.clone();
    comm.broadcast({first.data_ptr(), static_cast<int64_t>(first.nbytes()), DataType::kUInt8});
    equal = equal && std::memcmp(own.data_ptr(), first.data_ptr(), own.nbytes()) == 0;
  }
  return equal;
}

/// Runs `act` on every rank of a world of threads; nothing may be thrown.
inline void on_ranks(int world, const std::function<void(Communicator&)>& act) {
  const auto thrown = run_ranks(world, act);
  for (size_t rank = 0; rank < thrown.size(); ++rank) EXPECT_EQ(thrown[rank], "") << "rank " << rank;
}

/// The text that `act` throws; "" if nothing.
inline std::string thrown_by(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::test
