#include "cli/define.h"
#include "cli/verb.h"

namespace lockstep::cli {

namespace {

constexpr std::string_view kTrain = "Train";
constexpr std::string_view kUnderstand = "Understand";
constexpr std::string_view kMachine = "This machine";
constexpr std::string_view kProject = "The project";
constexpr std::string_view kHidden = "";

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {.name = "train",
       .group = kTrain,
       .summary = "Train the course's baseline model, in one process",
       .example = "lockstep train --steps 200 --batch 64",
       .define = define_train},
      {.name = "run",
       .group = kTrain,
       .summary = "Start a program on several ranks, watch them, end them together",
       .example = "lockstep run --nproc-per-node 2 -- ./my_program --its-own-flag",
       .define = define_run,
       .takes_program = true},
      {.name = "plan",
       .group = kUnderstand,
       .summary = "Draw a collective's plan, prove it and count its costs",
       .example = "lockstep plan allreduce --algorithm ring --world 4",
       .define = define_plan},
      {.name = "plan pipeline",
       .group = kUnderstand,
       .summary = "Draw a pipeline's plan, prove it and tell which sends may wait",
       .example = "lockstep plan pipeline --schedule 1f1b --stages 4 --microbatches 8",
       .define = define_plan_pipeline},
      {.name = "simulate",
       .group = kUnderstand,
       .summary = "Run a collective's plans on a virtual clock and compare their times",
       .example = "lockstep simulate allreduce --world 1024 --bytes 1GiB --alpha-us 5 --gbps 100",
       .define = define_simulate},
      {.name = "simulate pipeline",
       .group = kUnderstand,
       .summary = "Run pipeline schedules on a virtual clock and compare bubbles and memory",
       .example = "lockstep simulate pipeline --schedule all --stages 8 --microbatches 32 --comm 0.1",
       .define = define_simulate_pipeline},
      {.name = "doctor",
       .group = kMachine,
       .summary = "Check what matters for training here, and say how to mend it",
       .example = "lockstep doctor --json",
       .define = define_doctor},
      {.name = "bench launcher",
       .group = kMachine,
       .summary = "Measure how fast the launcher notices a death and ends a job",
       .example = "lockstep bench launcher --peers mpirun --rounds 9",
       .define = define_bench_launcher},
      {.name = "bench blas",
       .group = kMachine,
       .summary = "Measure matrix products with OpenBLAS's own choice of kernels and with ours",
       .example = "lockstep bench blas --rounds 7",
       .define = define_bench_blas},
      {.name = "bench allocator",
       .group = kMachine,
       .summary = "Measure training steps with tensors in shared memory and with LibTorch's own allocator",
       .example = "lockstep bench allocator --dim 1024 --depth 16",
       .define = define_bench_allocator},
      {.name = "bench ddp",
       .group = kMachine,
       .summary = "Measure data parallel training beside PyTorch's and beside one process, by turns",
       .example = "lockstep bench ddp --world 2 --model mlp:128x16 --batch 32 --peers pytorch,libtorch",
       .define = define_bench_ddp},
      {.name = "bench overlap",
       .group = kMachine,
       .summary = "Measure, as a rank of a job, how much communication hides behind backward",
       .example = "lockstep run --nproc-per-node 2 --engine gloo build/release/bin/lockstep bench overlap "
                  "--batch 256",
       .define = define_bench_overlap},
      {.name = "bench pipeline",
       .group = kMachine,
       .summary = "Measure pipeline parallel training by each schedule, beside what the simulator predicts",
       .example = "lockstep bench pipeline --stages 4 --microbatches 8 --sleep 4,4,4 --trace pipeline.json",
       .define = define_bench_pipeline},
      {.name = "bench allreduce",
       .group = kMachine,
       .summary = "Measure all-reduce on each engine, by turns",
       .example = "lockstep bench allreduce --world 2 --engines shm,gloo,mpi --sizes 4,64KiB,64MiB",
       .define = define_bench_allreduce},
      {.name = "bench broadcast",
       .group = kMachine,
       .summary = "Measure broadcast on each engine, by turns",
       .example = "lockstep bench broadcast --world 2 --engines shm,gloo,mpi --sizes 4,64KiB,64MiB",
       .define = define_bench_broadcast},
      {.name = "bench allgather",
       .group = kMachine,
       .summary = "Measure all-gather on each engine, by turns",
       .example = "lockstep bench allgather --world 2 --engines shm,gloo,mpi --sizes 4,64KiB,64MiB",
       .define = define_bench_allgather},
      {.name = "bench reducescatter",
       .group = kMachine,
       .summary = "Measure reduce-scatter on each engine, by turns",
       .example = "lockstep bench reducescatter --world 2 --engines shm,gloo,mpi --sizes 4,64KiB,64MiB",
       .define = define_bench_reducescatter},
      {.name = "bench alltoall",
       .group = kMachine,
       .summary = "Measure all-to-all on each engine, by turns",
       .example = "lockstep bench alltoall --world 2 --engines shm,gloo,mpi --sizes 4,64KiB,64MiB",
       .define = define_bench_alltoall},
      {.name = "bench pingpong",
       .group = kMachine,
       .summary = "Measure messages between two ranks on each engine, by turns",
       .example = "lockstep bench pingpong --world 2 --engines shm,gloo,mpi --sizes 4,64KiB,64MiB",
       .define = define_bench_pingpong},
      {.name = "bench --fit",
       .group = kMachine,
       .summary = "Fit the cost model to all-reduces, and judge it by sizes held out",
       .example = "lockstep bench --fit --engines shm,gloo,mpi --world 2 --save model.json",
       .define = define_bench_fit},
      {.name = "bench-collective-rank",
       .group = kHidden,
       .summary = "A rank of bench allreduce and the like",
       .example = "lockstep bench allreduce",
       .define = define_bench_collective_rank},
      {.name = "bench-ddp-rank",
       .group = kHidden,
       .summary = "A rank of bench ddp",
       .example = "lockstep bench ddp",
       .define = define_bench_ddp_rank},
      {.name = "bench-pipeline-rank",
       .group = "",
       .summary = "A rank of bench pipeline",
       .example = "lockstep bench pipeline",
       .define = define_bench_pipeline_rank},
      {.name = "bench-rank",
       .group = kHidden,
       .summary = "A rank of bench launcher",
       .example = "lockstep bench launcher",
       .define = define_bench_rank},
      {.name = "probe",
       .group = kHidden,
       .summary = "Print, as JSON, what LibTorch finds here (for doctor and the benchmarks)",
       .example = "lockstep probe",
       .define = define_probe},
      {.name = "completion",
       .group = kProject,
       .summary = "Print the completion script for bash or zsh",
       .example = "eval \"$(lockstep completion bash)\"",
       .define = define_completion},
      {.name = "test",
       .group = kProject,
       .summary = "Build and run the tests of the source tree, or a part of them",
       .example = "./lockstep test launch",
       .define = define_test},
  };
  return all;
}

const Verb* find_verb(const std::vector<std::string>& words) {
  const auto starts = [&](const Verb& verb) {
    const auto space = verb.name.find(' ');
    if (space == std::string_view::npos) return !words.empty() && words[0] == verb.name;
    return words.size() >= 2 && words[0] == verb.name.substr(0, space) &&
           words[1] == verb.name.substr(space + 1);
  };
  const Verb* found = nullptr;
  for (const auto& verb : verbs()) {
    const bool longer = found == nullptr || verb.name.size() > found->name.size();
    if (longer && starts(verb)) found = &verb;  // `plan pipeline` is not `plan`
  }
  return found;
}

}  // namespace lockstep::cli
