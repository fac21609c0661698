// LibTorch's tensors in shared memory.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include "comms/run_processes.h"
#include "lockstep/error.h"
#include "lockstep/lockstep.h"
#include "transport/process_arena.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;

bool is_shared(const at::Tensor& tensor) {
  return transport::process_arena()->contains(tensor.data_ptr(), tensor.nbytes());
}

/// Uses the allocator while it lives.
class SharedAllocator : public testing::Test {
 protected:
  SharedAllocator() { use_shared_allocator(); }
  ~SharedAllocator() override { use_shared_allocator(false); }
};

TEST_F(SharedAllocator, HoldsTensorsWhileTheyLive) {
  const size_t before = shared_memory_use().used_bytes;
  {
    at::Tensor a = at::ones({1000});
    at::Tensor b = at::ones({3, 700, 700});
    const at::Tensor c = (b * 2).transpose(1, 2).contiguous();
    const at::Tensor empty = at::ones({0});
    EXPECT_TRUE(is_shared(a));
    EXPECT_TRUE(is_shared(b));
    EXPECT_TRUE(is_shared(c));
    EXPECT_GE(shared_memory_use().used_bytes, before + a.nbytes() + b.nbytes() + c.nbytes());
    use_shared_allocator(false);
    EXPECT_FALSE(is_shared(at::ones({1000})));
    a.resize_({100'000});  // by the allocator that it had
    EXPECT_TRUE(is_shared(a));
    EXPECT_TRUE(is_shared(b));
    use_shared_allocator(true);
  }
  EXPECT_EQ(shared_memory_use().used_bytes, before);
}

void train_step(FullMLP& model, torch::optim::Optimizer& optimizer, const at::Tensor& x) {
  optimizer.zero_grad();
  model->forward(x).square().mean().backward();
  optimizer.step();
}

TEST_F(SharedAllocator, TrainingTakesNoNewMemoryAndNoPageFaultsAfterItsFirstSteps) {
  FullMLP model(256, 16);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-5));
  const at::Tensor x = at::randn({64, 256});
  for (int i = 0; i < 3; ++i) train_step(model, optimizer, x);
  const size_t held = shared_memory_use().held_bytes;
  const size_t used = shared_memory_use().used_bytes;
  rusage before = {};
  getrusage(RUSAGE_SELF, &before);
  constexpr int kSteps = 20;
  for (int i = 0; i < kSteps; ++i) train_step(model, optimizer, x);
  rusage after = {};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(shared_memory_use().held_bytes, held);
  EXPECT_EQ(shared_memory_use().used_bytes, used) << "nothing leaks";
  // The parameters alone are 1028 pages, touched some ten times a step.
  EXPECT_LT((after.ru_minflt - before.ru_minflt) / kSteps, 100);
}

TEST_F(SharedAllocator, AForkedChildUsesItsParentsTensors) {
  const at::Tensor tensor = at::full({1000}, 5.0);
  const pid_t child = fork();
  if (child == 0) {
    const bool same = tensor.equal(at::full({1000}, 5.0));
    tensor.fill_(6);
    const at::Tensor sum = tensor + at::ones({1000});
    _exit(same && sum[999].item<float>() == 7 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(tensor.equal(at::full({1000}, 5.0)));
}

TEST(SharedAllocatorByDefault, TensorsOfAJobOnSharedMemoryAreReducedWhereTheyLie) {
  const auto ended = run_processes(2, [](Communicator& comm) -> std::string {
    at::Tensor tensor = at::full({100'000}, comm.rank() + 1.0);
    if (!is_shared(tensor)) return "not shared";
    const void* const memory = tensor.data_ptr();
    comm.all_reduce(tensor);
    if (tensor.data_ptr() != memory || !tensor.equal(at::full({100'000}, 3.0))) return "wrong";
    return "";
  });
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

TEST(SharedAllocatorByDefault, IsSwitchedOffByTheEnvironment) {
  for (const auto& [value, expected] : std::vector<std::pair<const char*, const char*>>{
           {"0", "own"},
           {"1", "shared"},
           {"", "shared"},
           {"no", "LOCKSTEP_SHARED_ALLOCATOR is 'no'; hint: set it to 0 or 1"}}) {
    const auto ended = run_processes(
        1, [](Communicator&) -> std::string { return is_shared(at::ones({1000})) ? "shared" : "own"; },
        {.before = [value = value](Identity&) { setenv("LOCKSTEP_SHARED_ALLOCATOR", value, 1); }});
    EXPECT_THAT(ended[0].text, HasSubstr(expected));
  }
}

TEST(SharedAllocatorByDefault, AFailedJobsTensorsStayAndNewOnesLieElsewhere) {
  const auto ended = run_processes(2, [](Communicator& comm) -> std::string {
    const at::Tensor kept = at::full({1000}, 5.0);
    const void* freed = nullptr;
    {
      at::Tensor tensor = at::ones({100'000});
      freed = tensor.data_ptr();
      try {
        comm.all_reduce(comm.rank() == 0 ? tensor : kept);
      } catch (const PeerError&) {
      }
    }
    for (int i = 0; i < 100; ++i) {
      if (at::ones({100'000}).data_ptr() == freed)
        return "memory is used again that a late rank may write to";
    }
    if (is_shared(kept)) return "no other arena was taken";
    return kept.equal(at::full({1000}, 5.0)) ? "" : "what was kept has changed";
  });
  for (const auto& rank : ended) EXPECT_EQ(rank.text, "");
}

}  // namespace
}  // namespace lockstep::test
