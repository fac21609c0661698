#pragma once

#include <string>
#include <string_view>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// One action as plans, verdicts and traces show it: stage, kind, micro-batch, such as `2F0` or `3SEND_F1`.
std::string to_string(const Action& action);

/// The text form of a plan; parse_pipeline() reads it back.
///
///   pipeline 1f1b ranks 2 microbatches 4 chunks 1
///   rank 0
///     0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 ...
///   rank 1
///     1RECV_F0 1F0 1B0 1SEND_B0 ...
std::string to_string(const PipelinePlan& plan);

/// Reads the text form. Lines may break between any two actions; blank lines and what follows `#` are
/// ignored. Throws UsageError with line and reason. The plan may be wrong: verify_pipeline() tells.
PipelinePlan parse_pipeline(std::string_view text);

/// The CSV form: a line like the text form's first, then a line per rank, whose cells are its actions.
///
///   pipeline,1f1b,ranks,2,microbatches,4,chunks,1
///   0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,...
///   1RECV_F0,1F0,1B0,1SEND_B0,...
std::string to_csv(const PipelinePlan& plan);

/// Reads the CSV form. Throws UsageError with line, cell and reason.
PipelinePlan pipeline_from_csv(std::string_view text);

}  // namespace lockstep::plan
