#pragma once

#include "cli/bench_allocator.h"
#include "cli/bench_ddp_rank.h"
#include "cli/bench_overlap.h"
#include "cli/bench_pipeline_rank.h"
#include "cli/bench_train_rank.h"
#include "cli/generate_options.h"
#include "cli/train_options.h"
#include "cli/verb.h"

namespace lockstep::cli {

// The verbs that need torch. Each has two bodies: in lockstep, hand_to_torch.cpp passes the words on to
// lockstep-torch; in lockstep-torch, the verb's own file does the work. Flags are checked in both, so a
// typing error costs no LibTorch start.

int run_bench_allocator(const BenchAllocatorOptions& options, const Invocation& invocation);
int run_bench_ddp_rank(const DdpRankOptions& options, const Invocation& invocation);
int run_bench_overlap(const BenchOverlapOptions& options, const Invocation& invocation);
int run_bench_pipeline_rank(const PipelineRankOptions& options, const Invocation& invocation);
int run_bench_train_rank(const TrainBenchRankOptions& options, const Invocation& invocation);
int run_probe(const Invocation& invocation);
int run_eval(const EvalOptions& options, const Invocation& invocation);
int run_generate(const GenerateFlags& options, const Invocation& invocation);
int run_train(const TrainFlags& options, const Invocation& invocation);
int run_train_rank(const TrainRankFlags& options, const Invocation& invocation);

}  // namespace lockstep::cli
