// What collectives write into a trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "comms/run_ranks.h"
#include "lockstep/plan/collectives.h"
#include "lockstep/plan/text.h"
#include "lockstep/trace/session.h"

namespace lockstep::test {
namespace {

using testing::Contains;
using testing::Each;
using testing::IsEmpty;

std::vector<trace::Span> spans_of(const trace::Trace& trace, int rank, trace::Stream stream) {
  std::vector<trace::Span> result;
  for (const auto& span : trace.spans) {
    if (span.rank == rank && span.stream == stream) result.push_back(span);
  }
  return result;
}

trace::Trace traced(int world, const std::function<void(Communicator&)>& act) {
  trace::start();
  EXPECT_THAT(run_ranks(world, act), Each(IsEmpty()));
  return trace::stop();
}

TEST(CollectiveTrace, HasASpanForTheCallAndOneForEachStepOfItsPlan) {
  for (const std::string algorithm : {"ring", "push", "halving-doubling", "direct", "one-shot"}) {
    const auto trace = traced(2, [&](Communicator& comm) {
      const auto memory = comm.allocate(400);
      comm.all_reduce(Buffer(memory.get(), 100, DataType::kFloat32), ReduceOp::kSum,
                      {.algorithm = algorithm});
    });
    const auto plan = plan::make_plan(plan::Collective::kAllReduce, algorithm, {.world = 2});
    for (int rank = 0; rank < 2; ++rank) {
      std::multiset<std::string> expected = {"all_reduce " + algorithm};
      for (const auto& step : plan.steps(rank)) expected.insert(plan::to_string(step));
      std::multiset<std::string> found;
      const auto spans = spans_of(trace, rank, trace::Stream::kCommunication);
      for (const auto& span : spans) {
        found.insert(span.name);
        EXPECT_EQ(span.call, 1) << span.name;
        EXPECT_GE(span.begin_ns, spans[0].begin_ns);
        EXPECT_LE(span.end_ns, spans[0].end_ns);
      }
      EXPECT_EQ(found, expected) << algorithm << ", rank " << rank;
      ASSERT_FALSE(spans.empty());
      EXPECT_EQ(spans[0].bytes, 400);
    }
  }
}

TEST(CollectiveTrace, CountsTheBytesOfEveryStep) {
  const auto trace = traced(4, [](Communicator& comm) {
    std::vector<float> data(1000);
    comm.all_reduce(data, ReduceOp::kSum, {.algorithm = "ring"});
  });
  int64_t sent = 0;
  for (const auto& span : spans_of(trace, 2, trace::Stream::kCommunication)) {
    if (span.name.starts_with("send ")) sent += span.bytes;
  }
  EXPECT_EQ(sent, 2 * 3 * 1000);  // 2 (P - 1) chunks of 1000 bytes
}

TEST(CollectiveTrace, QueuedWorkIsOnTheProgressStream) {
  const auto trace = traced(2, [](Communicator& comm) {
    std::vector<float> data(10);
    comm.iall_reduce(data).wait();
  });
  EXPECT_THAT(spans_of(trace, 0, trace::Stream::kCommunication), IsEmpty());
  const auto spans = spans_of(trace, 1, trace::Stream::kProgress);
  ASSERT_FALSE(spans.empty());
  EXPECT_EQ(spans[0].name, "all_reduce one-shot");
}

TEST(CollectiveTrace, HasMessagesAndNamesGroups) {
  const auto trace = traced(2, [](Communicator& comm) {
    std::vector<float> data(10);
    if (comm.rank() == 0) comm.send(data, 1, 7);
    if (comm.rank() == 1) comm.recv(data, 0, 7);
    comm.split(0)->barrier();
  });
  const auto names_of = [&](int rank) {
    std::vector<std::string> names;
    for (const auto& span : spans_of(trace, rank, trace::Stream::kCommunication)) names.push_back(span.name);
    return names;
  };
  EXPECT_THAT(names_of(0), Contains("send 1"));
  EXPECT_THAT(names_of(1), Contains("recv 0"));
  EXPECT_EQ(spans_of(trace, 0, trace::Stream::kCommunication)[0].call, 7) << "the tag";
  EXPECT_THAT(names_of(1), Contains("barrier flags (world/1:0)"));
}

TEST(CollectiveTrace, ACallThatThrowsIsThereToo) {
  trace::start();
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 10 : 11);
    comm.all_reduce(data);
  });
  const auto trace = trace::stop();
  for (int rank = 0; rank < 2; ++rank) {
    const auto spans = spans_of(trace, rank, trace::Stream::kCommunication);
    ASSERT_FALSE(spans.empty());
    EXPECT_EQ(spans[0].name, "all_reduce one-shot");
  }
}

}  // namespace
}  // namespace lockstep::test
