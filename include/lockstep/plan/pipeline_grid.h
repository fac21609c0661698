#pragma once

#include <string>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// Grids are for people: more ranks, and more ranks x cycles, are refused by UsageError.
constexpr int kMostPipelineGridRanks = 64;
constexpr int64_t kMostPipelineGridCells = 16384;

/// A picture of a plan: a row per rank, a column per clock cycle. F, I and W of a stage take a cycle each, a
/// whole B two (`B3---`), messages none; a cycle without work is `.`. Cells are `F3` (micro-batch 3), and
/// `5F3` where ranks have several stages. Wide plans are folded into bands of at most 110 columns of text. A
/// legend follows. Throws UsageError for a plan that verify_pipeline() refuses, too.
std::string pipeline_grid(const PipelinePlan& plan);

}  // namespace lockstep::plan
