#pragma once

#include <string>
#include <string_view>

#include "lockstep/plan/plan.h"

namespace lockstep::plan {

/// The most steps that to_string writes, of all ranks together; larger plans are refused by UsageError.
constexpr int64_t kMostPrintedSteps = 1'000'000;

/// Throws UsageError if a plan has more steps than that.
void check_printable(const Plan& plan);

/// One step as plans, verdicts and traces show it, such as `send 1 slot 3` or `recv_reduce 3 slots 4..5 chunk
/// 0`.
std::string to_string(const Step& step);

/// The text form of a plan; parse() reads it back.
///
///   plan all_reduce ring world 2 root 0 chunks 2 slots 2 split order position sends rendezvous
///   rank 0
///     0 send 1 slot 1
///     0 recv_reduce 1 slot 0
///     ...
///
/// Each line of a rank is a round and a step. `slot 3` or `slots 3..5` name slots; `chunk 7` follows where
/// the first slot holds another chunk than the one of its own number. A combine names sources and
/// destinations as `COUNTx RANK:SLOT+RANKSTEP:SLOTSTEP`, with `except K=SLOT` for a place apart.
std::string to_string(const Plan& plan);

/// Reads the text form. Blank lines and what follows `#` are ignored. Throws UsageError with line and reason.
Plan parse(std::string_view text);

}  // namespace lockstep::plan
