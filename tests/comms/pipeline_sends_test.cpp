// Which sends of a pipeline may wait for their receives: threads whose sends do agree with the verifier.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "comms/run_ranks.h"
#include "lockstep/plan/pipeline_verify.h"

namespace lockstep::test {
namespace {

using plan::ActionKind;
using plan::PipelineSends;
using testing::Each;
using testing::IsEmpty;
using testing::Not;

bool waits(ActionKind send, PipelineSends sends) {
  if (sends == PipelineSends::kBlocking) return true;
  return send == ActionKind::kSendForward ? sends == PipelineSends::kBackwardAsync
                                          : sends == PipelineSends::kForwardAsync;
}

/// For each rank the action at which it waits for ever; the number of its actions if there is none.
std::vector<size_t> expected_ends(const plan::PipelinePlan& plan, const plan::PipelineVerdict& verdict,
                                  PipelineSends sends) {
  std::vector<size_t> ends;
  for (const auto& actions : plan.actions) ends.push_back(actions.size());
  for (const auto& blocked : verdict.blocked[static_cast<size_t>(sends)])
    ends[static_cast<size_t>(blocked.rank)] = blocked.action;
  return ends;
}

/// A rank's messages, in order. `settle` returns when all ranks are where they are expected to stay: only
/// then does a short wait tell one that is for ever.
void send_and_receive(Communicator& comm, const plan::PipelinePlan& plan, PipelineSends sends,
                      size_t expected_end, const std::function<void()>& settle, size_t& at) {
  const auto& actions = plan.actions[static_cast<size_t>(comm.rank())];
  std::vector<Work> leaving;
  float in = 0, out = 0;
  for (at = 0; at < actions.size(); ++at) {
    if (at == expected_end) settle();
    const CallOptions options = {.timeout = std::chrono::milliseconds(at == expected_end ? 20 : 20'000)};
    const auto& action = actions[at];
    if (action.is_compute()) continue;
    const int peer = plan.shape.peer_of(action);
    if (action.is_receive()) {
      comm.recv(std::span(&in, 1), peer, action.microbatch, options);
    } else if (waits(action.kind, sends)) {
      comm.send(std::span(&out, 1), peer, action.microbatch, options);
    } else {
      leaving.push_back(comm.isend(std::span(&out, 1), peer, action.microbatch));
    }
  }
  if (expected_end == actions.size()) settle();
  for (const auto& work : leaving) work.wait();
}

void expect_as_proved(const plan::PipelinePlan& plan, PipelineSends sends) {
  const auto verdict = plan::verify_pipeline(plan);
  ASSERT_TRUE(verdict.ok) << verdict.problem;
  const auto expected = expected_ends(plan, verdict, sends);
  std::vector<size_t> found(expected.size());
  std::latch everybody(plan.shape.ranks);
  const auto thrown = run_ranks(plan.shape.ranks,
                                [&](Communicator& comm) {
                                  const auto rank = static_cast<size_t>(comm.rank());
                                  bool has_come = false;
                                  try {
                                    send_and_receive(
                                        comm, plan, sends, expected[rank],
                                        [&] {
                                          has_come = true;
                                          everybody.arrive_and_wait();
                                        },
                                        found[rank]);
                                  } catch (...) {
                                    if (!has_come)
                                      everybody.count_down();  // the others are not to wait for it
                                    throw;
                                  }
                                },
                                {.threads = {.rendezvous = true}});
  const std::string what = fmt::format("{} with {} sends, {} ranks, {} micro-batches", plan.schedule,
                                       plan::name(sends), plan.shape.ranks, plan.shape.microbatches);
  EXPECT_EQ(found, expected) << what;
  if (verdict.completes(sends)) {
    EXPECT_THAT(thrown, Each(IsEmpty())) << what;
  } else {
    EXPECT_THAT(thrown, testing::Contains(Not(IsEmpty()))) << what;
  }
}

TEST(PipelineSends, HangOnATransportThatWaitsJustWhereTheVerifierSays) {
  for (const auto& schedule : plan::schedules()) {
    for (const int ranks : {2, 3, 4}) {
      for (const int microbatches : {ranks, 2 * ranks}) {
        const plan::PipelineShape shape = {
            .ranks = ranks, .microbatches = microbatches, .chunks = schedule.interleaves ? 2 : 1};
        if (!plan::why_not(schedule, shape).empty()) continue;
        const auto plan = plan::make_pipeline_plan(schedule.name, shape);
        for (const auto sends : plan::kAllPipelineSends) expect_as_proved(plan, sends);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::test
