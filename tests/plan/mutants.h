#pragma once

#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// A way to spoil a plan in one place.
enum class Mutation {
  kDropStep,
  kSwapSteps,  ///< Of one rank, in different rounds.
  kDuplicateStep,
  kWrongPeer,
  kWrongChunk,
  kWrongSlot,
  kMissingWait,
  kMissingPost,
  kReceiveAndAdd,  ///< recv instead of recv_reduce, or the other way round.
};
constexpr Mutation kMutations[] = {Mutation::kDropStep,    Mutation::kSwapSteps,   Mutation::kDuplicateStep,
                                   Mutation::kWrongPeer,   Mutation::kWrongChunk,  Mutation::kWrongSlot,
                                   Mutation::kMissingWait, Mutation::kMissingPost, Mutation::kReceiveAndAdd};

std::string_view name(Mutation mutation);

/// A plan that differs from `plan` in one place, at random; nothing if there is no such place.
std::optional<Plan> mutant_of(const Plan& plan, Mutation mutation, std::mt19937_64& random);

}  // namespace lockstep::plan
