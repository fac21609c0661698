// The contract of collectives, on threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <random>

#include "comms/contract.h"
#include "comms/execute.h"
#include "comms/run_ranks.h"
#include "lockstep/error.h"
#include "support/sanitizers.h"

namespace lockstep::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

class Contract : public testing::TestWithParam<int> {
 protected:
  void holds(std::vector<std::string> (*check)(Communicator&), const RanksOptions& options = {}) {
    std::mutex mutex;
    std::vector<std::string> problems;
    const auto thrown = run_ranks(
        GetParam(),
        [&](Communicator& comm) {
          const auto found = check(comm);
          const std::lock_guard lock(mutex);
          problems.insert(problems.end(), found.begin(), found.end());
        },
        options);
    EXPECT_THAT(thrown, Each(IsEmpty()));
    EXPECT_THAT(problems, IsEmpty());
  }
};

TEST_P(Contract, EveryAlgorithmGivesEveryRankWhatItPromises) {
  holds(check_collectives);
}
TEST_P(Contract, HoldsIfSendsWaitForTheirReceivesAndStepsAreDelayed) {
  holds(check_collectives, {.threads = {.rendezvous = true, .delays = 7}, .ranks_per_node = 2});
}
TEST_P(Contract, HoldsForEveryTypeAndOperation) {
  holds(check_types);
}
TEST_P(Contract, EveryAlgorithmGivesTheBitsOfItsPlan) {
  holds(check_bits);
}
TEST_P(Contract, ZerosInfinitiesAndNaNsGiveAllRanksTheSameBits) {
  holds(check_special_values);
  holds(check_special_values, {.ranks_per_node = 2});
}
TEST_P(Contract, SeveralBuffersInOneCallEndAsIfTheyLayTogether) {
  holds(check_coalesced);
}
TEST_P(Contract, MessagesArriveInOrderBothWaysAtOnce) {
  holds(check_messages);
}
TEST_P(Contract, MessagesArriveInWhateverOrderTheyArePostedAndAwaited) {
  holds(check_any_order);
  holds(check_any_order, {.threads = {.rendezvous = true, .delays = 7}});
}
TEST_P(Contract, QueuedWorkRunsInCallOrder) {
  holds(check_async);
}
TEST_P(Contract, GroupsOfAGroupAreApart) {
  holds(check_split);
}
TEST_P(Contract, BadArgumentsAreRefusedByEveryCall) {
  holds(check_refusals);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Contract,
                         testing::ValuesIn(kThreadSanitizer ? std::vector{1, 2, 3, 5}
                                                            : std::vector{1, 2, 3, 4, 5, 7, 8}),
                         testing::PrintToStringParamName());

TEST(Threads, EveryFaultIsTheSameErrorOnAllRanks) {
  for (const Fault& fault : faults()) {
    for (int trial = 0; trial < fault.trials; ++trial) {
      const auto thrown = run_ranks(fault.world,
                                    [&](Communicator& comm) {
                                      if (const auto text = fault.act(comm); !text.empty())
                                        throw std::runtime_error(text);
                                    },
                                    {.timeout = fault.timeout});
      EXPECT_THAT(thrown, Each(IsEmpty())) << fault.name;
    }
  }
}

TEST(Threads, ABufferMayBeFreedOnceItsMessageHasFailed) {
  // The job fails while threads in the background move a long message both ways. If they went on, freed
  // memory would be used: an error under a sanitizer, a fault elsewhere, since so large a block is unmapped.
  constexpr size_t kLong = size_t{2} << 20;
  for (int trial = 0; trial < 16; ++trial) {
    const bool waits = trial % 2 == 0;  // or lets go of its messages at once
    const auto thrown = run_ranks(2, [&](Communicator& comm) {
      const int other = 1 - comm.rank();
      std::vector<float> out(kLong), in(kLong), first_out(kLong / 16), first_in(kLong / 16);
      const Work first = comm.irecv(first_in, other);
      std::vector<Work> works = {comm.irecv(in, other), comm.isend(first_out, other), comm.isend(out, other)};
      first.wait();  // the long one is on its way now
      if (comm.rank() == 0) comm.abort("enough");
      for (const auto& work : works) {
        if (comm.rank() == 0 && !waits) break;
        try {
          work.wait();
        } catch (const PeerError&) {
        }
      }
      works.clear();
      std::vector<float>().swap(in);
      std::vector<float>().swap(out);
      comm.barrier();
    });
    EXPECT_THAT(thrown, Each(HasSubstr("enough")));
  }
}

TEST(Threads, AMillionTinyAllReducesAreRight) {
  constexpr int kCalls = kSanitizer ? 20'000 : 1'000'000;
  const auto thrown = run_ranks(2, [](Communicator& comm) {
    std::minstd_rand random(static_cast<unsigned>(comm.rank() + 1));
    for (int i = 0; i < kCalls; ++i) {
      std::vector<int32_t> data = {i + comm.rank(), comm.rank()};
      for (unsigned spins = random() % 64; spins > 0; --spins)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      comm.all_reduce(data);
      if (data[0] != 2 * i + 1 || data[1] != 1)
        throw std::runtime_error("call " + std::to_string(i) + " is wrong");
    }
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

/// Every rank makes its own call; all must throw the same words.
void expect_mismatch(int world, const std::function<void(Communicator&)>& act, const std::string& part) {
  const auto thrown = run_ranks(world, [&](Communicator& comm) {
    std::vector<float> warm = {1};
    comm.all_reduce(warm);
    act(comm);
    std::vector<float> next = {1};
    comm.all_reduce(next);  // a rank that had already left gets it now
  });
  for (const auto& text : thrown) {
    EXPECT_THAT(text, HasSubstr("the same calls in the same order"));
    EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(text.substr(0, text.find("; last calls")), thrown[0].substr(0, thrown[0].find("; last calls")));
  }
}

TEST(Mismatch, IsTheSameClearErrorOnAllRanks) {
  for (const int world : {2, 3}) {
    const auto last = [world](const Communicator& comm) { return comm.rank() == world - 1; };
    for (const std::string_view algorithm : {"", "ring", "direct", "tree"}) {
      const CallOptions options = {.algorithm = algorithm};
      expect_mismatch(
          world,
          [&](Communicator& comm) {
            std::vector<float> data(last(comm) ? 4000 : 4096, 1.0F);
            comm.all_reduce(data, ReduceOp::kSum, options);
          },
          "4096 float32");
      expect_mismatch(
          world,
          [&](Communicator& comm) {
            std::vector<float> data(100);
            std::vector<int32_t> whole(100);
            comm.all_reduce(last(comm) ? Buffer(whole) : Buffer(data), ReduceOp::kSum, options);
          },
          "100 int32");
      expect_mismatch(
          world,
          [&](Communicator& comm) {
            std::vector<float> data(3000);
            comm.all_reduce(data, last(comm) ? ReduceOp::kMax : ReduceOp::kSum, options);
          },
          "max of 3000");
    }
    expect_mismatch(
        world,
        [&](Communicator& comm) {
          std::vector<float> data(10);
          comm.broadcast(data, last(comm) ? 1 : 0);
        },
        "root 1");
    expect_mismatch(
        world,
        [&](Communicator& comm) {
          std::vector<float> data(10);
          if (last(comm)) {
            comm.barrier();
          } else {
            comm.all_reduce(data);
          }
        },
        "barrier #2");
    expect_mismatch(  // as many elements in as many parts, cut in another way
        world,
        [&](Communicator& comm) {
          std::vector<float> data(8);
          const int64_t first = last(comm) ? 5 : 3;
          comm.all_reduce_coalesced({Buffer(data.data(), first, DataType::kFloat32),
                                     Buffer(data.data() + first, 8 - first, DataType::kFloat32)});
        },
        "8 float32, in parts");
    expect_mismatch(
        world,
        [&](Communicator& comm) {
          std::vector<float> data(10'000);
          comm.all_reduce(data, ReduceOp::kSum, {.algorithm = last(comm) ? "ring" : "push"});
        },
        "algorithm ring");
  }
}

TEST(Threads, FlagsMayWrapAround) {
  for (const std::string_view algorithm : {"", "push", "ring"}) {
    const auto thrown = run_ranks(3,
                                  [&](Communicator& comm) {
                                    for (int i = 0; i < 20; ++i) {
                                      std::vector<int32_t> data(10, i + comm.rank());
                                      comm.all_reduce(data, ReduceOp::kSum, {.algorithm = algorithm});
                                      if (data[9] != 3 * i + 3)
                                        throw std::runtime_error("call " + std::to_string(i) + " is wrong");
                                    }
                                  },
                                  {.threads = {.first_run = (uint32_t{1} << 30) - 10}});
    EXPECT_THAT(thrown, Each(IsEmpty()));
  }
}

TEST(Threads, ARankThatDoesNotComeIsNamedAtTheTimeout) {
  std::latch given_up(2);
  const auto thrown = run_ranks(3,
                                [&](Communicator& comm) {
                                  std::vector<float> data(10);
                                  if (comm.rank() == 2) return given_up.wait();
                                  try {
                                    comm.all_reduce(data);
                                  } catch (...) {
                                    given_up.count_down();
                                    throw;
                                  }
                                },
                                {.timeout = std::chrono::milliseconds(3000)});
  EXPECT_THAT(thrown[0], HasSubstr("all_reduce #1 on rank"));
  EXPECT_THAT(thrown[0], HasSubstr("rank 2 did not come within the timeout"));
  EXPECT_THAT(thrown[1], HasSubstr("rank 2 did not come within the timeout"));
  EXPECT_THAT(thrown[0],
              HasSubstr("last calls of this rank: all_reduce #1 (sum of 10 float32, algorithm one-shot)"));
}

TEST(Threads, TheLastCallsOfManyAreNamed) {
  const auto thrown = run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(10);
    for (int i = 0; i < 50; ++i) i % 2 == 0 ? comm.all_reduce(data) : comm.barrier();
    for (int i = 0; i < 5; ++i) comm.broadcast(data);
    comm.all_reduce(data, comm.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
  });
  for (const auto& text : thrown) {
    EXPECT_THAT(
        text, HasSubstr("; last calls of this rank: all_reduce #45 (sum of 10 float32, algorithm one-shot), "
                        "barrier #46 (algorithm flags), all_reduce #47 "));
    EXPECT_THAT(
        text,
        HasSubstr(", barrier #50 (algorithm flags), broadcast #51 to broadcast #55 (10 float32, root 0, "
                  "algorithm pull), all_reduce #56 ("));
  }
}

TEST(Threads, ACallMayHaveATimeoutOfItsOwn) {
  std::latch given_up(1);
  const auto thrown =
      run_ranks(2,
                [&](Communicator& comm) {
                  std::vector<float> data(10);
                  if (comm.rank() == 1) return given_up.wait();
                  try {
                    comm.all_reduce(data, ReduceOp::kSum, {.timeout = std::chrono::milliseconds(200)});
                  } catch (const TimeoutError& error) {
                    given_up.count_down();
                    if (error.peer != 1) throw std::runtime_error("another peer");
                    throw;
                  }
                },
                {.timeout = std::chrono::minutes(30)});
  EXPECT_THAT(thrown[0], HasSubstr("all_reduce #1 on rank 0: rank 1 did not come within the timeout"));
}

TEST(Threads, WhatGoesWrongWithQueuedWorkIsThrownByItsWait) {
  const auto thrown = run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 1000 : 999);
    const Work first = comm.iall_reduce(data);
    const Work second = comm.ibarrier();
    comm.ibarrier();  // nobody waits for it: its end is no harm
    for (const Work& work : {first, first, second}) {
      try {
        work.wait();
        throw std::runtime_error("it went on");
      } catch (const PeerError&) {
      }
    }
    first.wait();
  });
  for (const auto& text : thrown)
    EXPECT_THAT(text, HasSubstr("rank 0 called all_reduce #1 (sum of 1000 float32"));
}

TEST(Threads, AMessageMayHaveATimeoutOfItsOwn) {
  const auto thrown = run_ranks(2,
                                [&](Communicator& comm) {
                                  std::vector<float> data(100'000);
                                  if (comm.rank() == 1) {
                                    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                                    return comm.recv(data, 0, 0, {.timeout = std::chrono::minutes(10)});
                                  }
                                  comm.isend(data, 1, 0, {.timeout = std::chrono::minutes(10)}).wait();
                                },
                                {.timeout = std::chrono::milliseconds(500)});
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST(Threads, AReaderOfABroadcastWhoseRootGaveUpThrowsToo) {
  const auto jobs = transport::make_thread_jobs(2, {});
  std::vector<std::unique_ptr<transport::Transport>> groups(2);
  const auto deadline = transport::Control::Clock::now() + std::chrono::minutes(1);
  std::thread other([&] { groups[1] = jobs[1]->make_group("world", {0, 1}, deadline); });
  groups[0] = jobs[0]->make_group("world", {0, 1}, deadline);
  other.join();
  const transport::Header header = {.call = 1};
  const transport::Limit limit = {.timeout = std::chrono::minutes(1),
                                  .failed = &jobs[1]->control().failed_flag()};
  const auto read_from_root = [&] {
    comms::Executor executor(*groups[1], "");
    comms::PlanCache plans(1, 2, 1);
    float own = 0;
    const comms::Data data = {.slots = reinterpret_cast<std::byte*>(&own), .count = 1};
    executor.run(plans.find(plan::Collective::kBroadcast, "pull", 0), header, data, limit,
                 trace::Stream::kCommunication);
    return own;
  };
  transport::OneSided& root = *groups[0]->one_sided();
  auto* const memory = static_cast<float*>(root.allocate(sizeof(float)));
  *memory = 7;
  const auto show = [&] {
    root.begin(header, limit);
    root.share(memory);
    root.post();
    root.settle();
  };
  show();
  EXPECT_EQ(read_from_root(), 7);
  show();
  groups[0]->withdraw();  // from now on the memory may be used for anything
  EXPECT_THAT(read_from_root,
              testing::ThrowsMessage<PeerError>(HasSubstr("rank 0 gave up while its data was read")));
}

TEST(Threads, ARankThatHasLeftIsNamedAtOnce) {
  const std::vector<std::function<void(Communicator&)>> waits = {
      [](Communicator& comm) { comm.barrier(); },
      [](Communicator& comm) {
        std::vector<float> data(10);
        comm.all_reduce(data, ReduceOp::kSum, {.algorithm = "ring"});
      },
      [](Communicator& comm) {
        std::vector<float> data(10);
        comm.recv(data, 1);
      },
  };
  for (const auto& wait : waits) {
    const auto thrown = run_ranks(2,
                                  [&](Communicator& comm) {
                                    if (comm.rank() == 0) wait(comm);
                                  },
                                  {.timeout = std::chrono::minutes(30)});
    EXPECT_THAT(thrown[0], HasSubstr("rank 1 has left the job"));
  }
}

TEST(Threads, AnAbortFromAnotherThreadWakesThoseThatWait) {
  const auto thrown = run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(10);
    if (comm.rank() == 1) {
      comm.abort("enough");
      return;
    }
    const Work work = comm.iall_reduce(data);
    work.wait();
  });
  EXPECT_THAT(thrown[0], HasSubstr("rank 1 ended the communication: enough"));
}

TEST(Threads, BadArgumentsAreRefusedByNameAndValue) {
  const auto thrown = run_ranks(1, [](Communicator& comm) {
    std::vector<int32_t> whole(4);
    std::vector<float> data(4), other(3);
    EXPECT_THROW(comm.all_reduce(whole, ReduceOp::kMean), std::runtime_error);
    EXPECT_THROW(comm.broadcast(data, 1), std::runtime_error);
    EXPECT_THROW(comm.all_gather(data, other), std::runtime_error);
    EXPECT_THROW(comm.send(data, 0), std::runtime_error);
    EXPECT_THROW(comm.all_reduce(data, ReduceOp::kSum, {.algorithm = "rong"}), std::runtime_error);
    std::vector<float> large(1000);
    EXPECT_THROW(comm.all_reduce(large, ReduceOp::kSum, {.algorithm = "one-shot"}), std::runtime_error);
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

}  // namespace
}  // namespace lockstep::test
