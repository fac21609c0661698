#pragma once

#include "cli/verb.h"

namespace lockstep::cli {

Action define_bench_allgather(Flags flags);
Action define_bench_allocator(Flags flags);
Action define_bench_allreduce(Flags flags);
Action define_bench_alltoall(Flags flags);
Action define_bench_blas(Flags flags);
Action define_bench_broadcast(Flags flags);
Action define_bench_collective_rank(Flags flags);
Action define_bench_ddp(Flags flags);
Action define_bench_ddp_rank(Flags flags);
Action define_bench_fit(Flags flags);
Action define_bench_overlap(Flags flags);
Action define_bench_pingpong(Flags flags);
Action define_bench_pipeline(Flags flags);
Action define_bench_pipeline_rank(Flags flags);
Action define_bench_reducescatter(Flags flags);
Action define_bench_launcher(Flags flags);
Action define_bench_rank(Flags flags);
Action define_bench_train(Flags flags);
Action define_bench_train_rank(Flags flags);
Action define_checkpoint_export(Flags flags);
Action define_checkpoint_show(Flags flags);
Action define_checkpoint_verify(Flags flags);
Action define_completion(Flags flags);
Action define_doctor(Flags flags);
Action define_eval(Flags flags);
Action define_generate(Flags flags);
Action define_lab(Flags flags);
Action define_lab_bench(Flags flags);
Action define_lab_check(Flags flags);
Action define_lab_fast_track(Flags flags);
Action define_lab_hint(Flags flags);
Action define_lab_list(Flags flags);
Action define_lab_progress(Flags flags);
Action define_lab_quiz(Flags flags);
Action define_lab_read(Flags flags);
Action define_lab_reset(Flags flags);
Action define_lab_solution(Flags flags);
Action define_lab_start(Flags flags);
Action define_lab_view(Flags flags);
Action define_lab_why(Flags flags);
Action define_plan(Flags flags);
Action define_plan_pipeline(Flags flags);
Action define_probe(Flags flags);
Action define_run(Flags flags);
Action define_simulate(Flags flags);
Action define_simulate_pipeline(Flags flags);
Action define_test(Flags flags);
Action define_train(Flags flags);
Action define_train_rank(Flags flags);
Action define_version(Flags flags);

}  // namespace lockstep::cli
