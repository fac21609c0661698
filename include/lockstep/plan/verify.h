#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// What a plan moves, for `count` elements. Messages of no bytes are not sent, and not counted.
struct Traffic {
  int64_t bytes_per_rank =
      0;  ///< The most that one rank sends (one-sided: loads and stores in others' memory).
  int64_t bytes_per_link = 0;     ///< The most that goes from one rank to another.
  int64_t bytes_at_rank = 0;      ///< The most that one rank sends and receives together: the busiest port.
  int64_t total_bytes = 0;        ///< Of all messages.
  int64_t messages_per_rank = 0;  ///< The most that one rank sends.
  int64_t total_messages = 0;
  int rounds =
      0;  ///< Messages in the longest chain in which each waits for the one before; flags count as one.
};

/// What the verifier found.
struct Verdict {
  bool ok = false;
  std::string problem;       ///< Empty if ok: what is wrong, in which step of which rank.
  std::vector<int> blocked;  ///< Ranks that wait for ever, if that is the problem.
  bool rendezvous = false;   ///< Completes even if a send waits for its receive.
  bool exact =
      false;  ///< Contributions were tracked one by one (worlds to 64), not by fingerprint and count.
  Traffic traffic;
};

struct VerifyOptions {
  Count count = 1 << 20;
  int element_bytes = 4;
};

/// Proves a plan, symbolically and for every count: each rank ends with exactly what the collective promises,
/// each contribution once; nothing is read before it has arrived; no loads and stores race between flags; the
/// plan cannot deadlock under the sends that it asks for; all ranks add in the same order, which is rank
/// order where that is declared. Never throws for a bad plan.
///
/// Worlds to 64 are tracked exactly; larger ones by count and a 128-bit sum of random numbers per
/// contribution, which a wrong plan passes with a probability of about 2^-128 per slot. Cost: a few tens of
/// ns per step, 32 bytes per slot.
Verdict verify(const Plan& plan, const VerifyOptions& options = {});

}  // namespace lockstep::plan
