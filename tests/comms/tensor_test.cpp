// Collectives on tensors.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comms/run_ranks.h"
#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"

namespace lockstep::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

at::Tensor filled(double value) {
  return at::full({2, 3}, value);
}

TEST(DataParallelComms, EveryPrimitiveDoesWhatItsNameSays) {
  const auto thrown = run_ranks(3, [](Communicator& comm) {
    DataParallelComms comms(comm);
    const int rank = comms.rank();
    const auto expect = [](const at::Tensor& found, double value) {
      if (!found.equal(at::full_like(found, value))) throw std::runtime_error("wrong tensor");
    };
    expect(comms.all_reduce_mean(filled(rank)), 1);
    expect(comms.broadcast(filled(rank), 2), 2);
    const auto sum = comms.reduce(filled(rank + 1), 1);
    if (rank == 1) expect(sum, 6);
    comms.barrier();
    expect(comms.scatter(filled(0),
                         rank == 1 ? std::vector{filled(5), filled(6), filled(7)} : std::vector<at::Tensor>{},
                         1),
           5 + rank);
    const auto gathered = comms.gather(filled(rank), 2);
    if (gathered.size() != (rank == 2 ? 3U : 0U)) throw std::runtime_error("wrong number of tensors");
    for (size_t k = 0; k < gathered.size(); ++k) expect(gathered[k], static_cast<double>(k));
    const auto all = comms.all_gather(filled(rank));
    for (size_t k = 0; k < 3; ++k) expect(all[k], static_cast<double>(k));
    if (rank == 0) send_tensor(comm, filled(9), 1);
    if (rank == 1) expect(recv_tensor(comm, {2, 3}, 0), 9);
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST(DataParallelComms, ScattersAndGathersEveryType) {
  for (const int world : {2, 3, 4}) {
    const auto thrown = run_ranks(world, [&](Communicator& comm) {
      for (const auto type :
           {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte, at::kBool}) {
        DataParallelComms comms(
            *comm.split(0));  // nothing is left of an earlier call that could be large enough
        const int root = world - 1;
        std::vector<at::Tensor> inputs;
        for (int k = 0; k < world && comms.rank() == root; ++k)
          inputs.push_back(at::full({1000}, k % 2, type));
        const at::Tensor own = comms.scatter(at::zeros({1000}, type), inputs, root);
        if (!own.equal(at::full({1000}, comms.rank() % 2, type))) throw std::runtime_error("wrong part");
        const auto all = DataParallelComms(*comm.split(0)).gather(own, root);
        for (size_t k = 0; k < all.size(); ++k) {
          if (!all[k].equal(at::full({1000}, static_cast<int>(k % 2), type)))
            throw std::runtime_error("wrong tensor");
        }
      }
    });
    EXPECT_THAT(thrown, Each(IsEmpty()));
  }
}

TEST(Tensors, OfEveryKnownTypeAreTaken) {
  const auto thrown = run_ranks(2, [](Communicator& comm) {
    for (const auto type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte}) {
      at::Tensor tensor = at::ones({7}, type);
      comm.all_reduce(tensor);
      if (!tensor.equal(at::full({7}, 2, type))) throw std::runtime_error("wrong sum");
    }
    at::Tensor flags = at::zeros({3}, at::kBool);
    if (comm.rank() == 1) flags[1] = true;
    comm.all_reduce(flags);
    if (!flags[1].item<bool>() || flags[0].item<bool>()) throw std::runtime_error("wrong flags");
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST(Tensors, ThatCannotBeUsedAreRefusedByName) {
  const auto refusal = [](const at::Tensor& tensor) -> std::string {
    try {
      const Buffer buffer(tensor);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refusal(at::ones({2, 3}).t()), HasSubstr("shape [3, 2]"));
  EXPECT_THAT(refusal(at::ones({2, 3}).t()), HasSubstr("not contiguous"));
  EXPECT_THAT(refusal(at::ones({2}, at::kComplexFloat)), HasSubstr("do not know its type"));
  EXPECT_THAT(refusal(at::ones({2}, at::TensorOptions().device(at::kMeta))), HasSubstr("it is on meta"));
  EXPECT_THAT(refusal(at::Tensor()), HasSubstr("not defined"));
}

}  // namespace
}  // namespace lockstep::test
