#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// Which sends wait for their receive, and which return at once.
enum class PipelineSends : uint8_t {
  kBlocking,       ///< All wait.
  kForwardAsync,   ///< SEND_F returns at once, SEND_B waits.
  kBackwardAsync,  ///< SEND_B returns at once, SEND_F waits.
  kAsync,          ///< All return at once.
};

constexpr std::array<PipelineSends, 4> kAllPipelineSends = {
    PipelineSends::kBlocking, PipelineSends::kForwardAsync, PipelineSends::kBackwardAsync,
    PipelineSends::kAsync};

/// `blocking`, `forward async`, `backward async`, `async`.
std::string_view name(PipelineSends sends);

/// A rank that waits for ever, and for what.
struct BlockedRank {
  int rank = 0;
  size_t action = 0;  ///< Its place in the rank's actions.
  int peer = 0;       ///< Whom it waits for.
};

/// What the verifier found.
struct PipelineVerdict {
  bool ok = false;      ///< Right, and completes with asynchronous sends.
  std::string problem;  ///< Empty if ok: what is wrong, in which action of which rank.
  /// By PipelineSends: the ranks that wait for ever; none if the plan completes. Empty for a plan that is
  /// wrong otherwise.
  std::array<std::vector<BlockedRank>, 4> blocked;
  /// By rank: the most activations that live at once, each from its F until its B has run, or, where backward
  /// is split, until its W has. Units: one micro-batch of all chunks of a rank.
  std::vector<double> peak_activations;

  /// Whether it completes under these sends.
  bool completes(PipelineSends sends) const { return ok && blocked[static_cast<size_t>(sends)].empty(); }
};

/// Proves a plan: each stage runs forward once for each micro-batch, after its input has arrived; and
/// backward once, whole or as I and then W, after its own forward and after the gradient has arrived; each
/// message is sent after what it carries was made, and received once, in the order of the sender; nothing
/// waits for ever if sends return at once. Tells which sends may wait. Never throws for a bad plan.
///
/// A few tens of ns per action, and a few bytes per stage and micro-batch.
PipelineVerdict verify_pipeline(const PipelinePlan& plan);

/// `rank 0 waits in action 3 (0SEND_F1) for rank 1`
std::string describe(const PipelinePlan& plan, const BlockedRank& blocked);

}  // namespace lockstep::plan
