#include "parallel/ddp/join.h"

#include <fmt/format.h>

#include <array>

#include "lockstep/error.h"

namespace lockstep::ddp {

namespace {

std::string describe(int64_t phase, int64_t norm) {
  constexpr std::array kNames = {"no forward or backward",    "a forward (samples)",
                                 "a forward (buffers)",       "a backward",
                                 "a forward (SyncBatchNorm)", "a backward (SyncBatchNorm)"};
  if (phase < 0 || phase >= static_cast<int64_t>(kNames.size())) return fmt::format("phase {}", phase);
  return norm == 0 ? kNames[static_cast<size_t>(phase)]
                   : fmt::format("{} number {}", kNames[static_cast<size_t>(phase)], norm);
}

}  // namespace

void JoinState::begin(const JoinOptions& options) {
  if (on_) throw UsageError("ddp join: within another; hint: call it once, round the outer loop");
  options_ = options;
  on_ = true;
  all_threw_ = false;
  active_ = comm_.world_size();
  lowest_active_ = 0;
}

void JoinState::tell(const Pulse& pulse) {
  std::vector<int64_t> own = {pulse.is_active ? 1 : 0, static_cast<int64_t>(pulse.phase), pulse.batch,
                              pulse.has_failed ? 1 : 0, pulse.norm};
  std::vector<int64_t> all(own.size() * static_cast<size_t>(comm_.world_size()));
  comm_.all_gather(own, all);
  active_ = 0;
  batch_sum_ = 0;
  int failed = -1;
  int done = -1;
  int differs = -1;
  const int64_t* first = nullptr;  // the pulse of an active rank
  for (int rank = comm_.world_size() - 1; rank >= 0; --rank) {
    const int64_t* const theirs = all.data() + static_cast<size_t>(rank) * own.size();
    batch_sum_ += theirs[2];
    if (theirs[3] != 0) failed = rank;
    if (theirs[0] == 0) {
      done = rank;
      continue;
    }
    if (first != nullptr && (theirs[1] != first[1] || theirs[4] != first[4])) differs = rank;
    if (first == nullptr) first = theirs;
    ++active_;
    lowest_active_ = rank;
    phase_ = static_cast<Phase>(theirs[1]);
    norm_ = static_cast<size_t>(theirs[4]);
  }
  if (pulse.has_failed) return;  // what it threw itself is on its way
  if (failed >= 0) {
    all_threw_ = true;
    throw Error(fmt::format("ddp join: rank {} threw in its loop; hint: its own error says why", failed));
  }
  if (differs >= 0) {
    all_threw_ = true;
    const int64_t* const theirs = all.data() + static_cast<size_t>(differs) * own.size();
    throw Error(fmt::format(
        "ddp join: rank {} begins {}, rank {} {}; hint: ranks that have inputs must make the same calls",
        differs, describe(theirs[1], theirs[4]), (first - all.data()) / static_cast<int64_t>(own.size()),
        describe(first[1], first[4])));
  }
  if (options_.throw_on_early_termination && done >= 0 && active_ > 0) {
    all_threw_ = true;
    throw Error(
        fmt::format("ddp join: rank {} has no more inputs, {} ranks have; hint: give all ranks equally "
                    "many batches, or allow it by throw_on_early_termination = false",
                    done, active_));
  }
}

}  // namespace lockstep::ddp
