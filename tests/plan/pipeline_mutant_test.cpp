// Pipeline plans spoilt in one place: the verifier refuses whatever is not the same training step.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <regex>

#include "lockstep/plan/pipeline_text.h"
#include "lockstep/plan/pipeline_verify.h"
#include "plan/pipeline_reference.h"
#include "plan/pipeline_shapes.h"

namespace lockstep::plan {
namespace {

enum class Mutation { kDrop, kDuplicate, kSwap, kWrongStage, kWrongMicrobatch, kWrongKind, kWrongRank };
constexpr Mutation kMutations[] = {Mutation::kDrop,       Mutation::kDuplicate,       Mutation::kSwap,
                                   Mutation::kWrongStage, Mutation::kWrongMicrobatch, Mutation::kWrongKind,
                                   Mutation::kWrongRank};

std::string_view name(Mutation mutation) {
  constexpr std::string_view kNames[] = {"dropped",           "duplicated", "swapped",   "wrong stage",
                                         "wrong micro-batch", "wrong kind", "wrong rank"};
  return kNames[static_cast<size_t>(mutation)];
}

struct Tally {
  int mutants = 0;
  int refused = 0;
  int faulty = 0;  ///< Of the refused, those that the oracle caught, too.
};

int another(std::mt19937_64& random, int most, int not_this) {
  int value = not_this;
  while (value == not_this) value = static_cast<int>(random() % (static_cast<size_t>(most) + 1));
  return value;
}

PipelinePlan mutant_of(PipelinePlan plan, Mutation mutation, std::mt19937_64& random) {
  auto& actions = plan.actions[random() % plan.actions.size()];
  const auto at = actions.begin() + static_cast<std::ptrdiff_t>(random() % actions.size());
  switch (mutation) {
    case Mutation::kDrop:
      actions.erase(at);
      break;
    case Mutation::kDuplicate:
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(random() % actions.size()), Action(*at));
      break;
    case Mutation::kSwap:
      std::swap(*at, actions[random() % actions.size()]);
      break;
    case Mutation::kWrongStage:
      at->stage = another(random, plan.shape.stages(), at->stage);
      break;
    case Mutation::kWrongMicrobatch:
      at->microbatch = another(random, plan.shape.microbatches, at->microbatch);
      break;
    case Mutation::kWrongKind:
      at->kind = static_cast<ActionKind>(
          another(random, static_cast<int>(ActionKind::kRecvBackward), static_cast<int>(at->kind)));
      break;
    case Mutation::kWrongRank: {
      const Action moved = *at;
      actions.erase(at);
      plan.actions[random() % plan.actions.size()].push_back(moved);
      break;
    }
  }
  return plan;
}

/// A refusal tells which rank, and which action or which end it comes to.
bool is_precise(const std::string& problem) {
  static const std::regex pattern(
      "(rank \\d+ action \\d+ \\(.*|deadlock: rank \\d+ waits in action \\d+ .* for rank \\d+.*|"
      "rank \\d+ ends without .*)");
  return std::regex_match(problem, pattern);
}

/// One mutant against the oracle.
void check(const PipelinePlan& mutant, uint64_t seed, Tally& tally) {
  ++tally.mutants;
  const PipelineVerdict verdict = verify_pipeline(mutant);
  if (!verdict.ok) {
    ++tally.refused;
    EXPECT_TRUE(is_precise(verdict.problem)) << verdict.problem << "\n" << to_string(mutant);
    if (!reference::fault_of(mutant, PipelineSends::kAsync, seed).empty()) ++tally.faulty;
    return;
  }
  for (const auto sends : kAllPipelineSends) {
    EXPECT_EQ(reference::fault_of(mutant, sends, seed), verdict.completes(sends) ? "" : "deadlock")
        << name(sends) << ", accepted:\n"
        << to_string(mutant);
  }
}

class PipelineMutants : public testing::TestWithParam<Schedule> {};

TEST_P(PipelineMutants, AreRefusedUnlessTheyTrainTheSame) {
  std::mt19937_64 random(4711);
  std::map<Mutation, Tally> tallies;
  constexpr int kMutantsOfEachClass = 4;
  for (const auto& shape : shapes_of(GetParam(), 5, 10)) {
    if (shape.ranks == 1) continue;
    const PipelinePlan plan = make_pipeline_plan(GetParam().name, shape);
    for (const Mutation mutation : kMutations) {
      for (int i = 0; i < kMutantsOfEachClass; ++i) {
        const PipelinePlan mutant = mutant_of(plan, mutation, random);
        if (mutant != plan) check(mutant, random() % 1000, tallies[mutation]);
        if (HasFailure()) return;
      }
    }
  }
  Tally all;
  for (const auto& [mutation, tally] : tallies) {
    all.mutants += tally.mutants;
    all.refused += tally.refused;
    all.faulty += tally.faulty;
    // Two actions that do not need each other may change places, and an action may come to the end of its
    // own rank.
    if (mutation != Mutation::kSwap && mutation != Mutation::kWrongRank) {
      EXPECT_EQ(tally.refused, tally.mutants) << name(mutation);
    }
    RecordProperty(std::string(name(mutation)),
                   fmt::format("{} mutants, {} refused, {} of them train wrongly", tally.mutants,
                               tally.refused, tally.faulty));
  }
  EXPECT_GT(all.mutants, 500);
  EXPECT_GE(all.refused, all.mutants * 9 / 10);
  EXPECT_GT(all.faulty, all.refused * 3 / 4);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, PipelineMutants, testing::ValuesIn(schedules()),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace lockstep::plan
