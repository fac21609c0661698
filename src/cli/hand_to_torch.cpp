#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/torch_verbs.h"
#include "launch/blas.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"

namespace lockstep::cli {

namespace {

/// Replaces this process by lockstep-torch with the same words.
int become_torch(const Invocation& invocation) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lockstep-torch";
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const auto& word : invocation.words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  throw Error(
      fmt::format("cannot start {}: {}; hint: this build has no LibTorch part, build the preset release",
                  program.string(), std::strerror(errno)));
}

/// The same with the right kernels: OpenBLAS chooses them when it is loaded, so that the environment must say
/// it before LibTorch starts.
int hand_over(const Invocation& invocation) {
  const auto environment = launch::current_environment();
  const auto choice =
      launch::choose_coretype(launch::detect_cpu(), launch::probe_openblas(environment), environment);
  // Something is chosen only where the user has not, and a variable that is set but empty is no choice.
  if (!choice.coretype.empty()) setenv("OPENBLAS_CORETYPE", choice.coretype.c_str(), /*overwrite=*/1);
  return become_torch(invocation);
}

}  // namespace

int run_bench_allocator(const BenchAllocatorOptions&, const Invocation& invocation) {
  return hand_over(invocation);
}

int run_bench_ddp_rank(const DdpRankOptions&, const Invocation& invocation) {
  return hand_over(invocation);
}

int run_bench_overlap(const BenchOverlapOptions&, const Invocation& invocation) {
  return hand_over(invocation);
}

int run_bench_pipeline_rank(const PipelineRankOptions&, const Invocation& invocation) {
  return hand_over(invocation);
}

int run_bench_train_rank(const TrainBenchRankOptions&, const Invocation& invocation) {
  return hand_over(invocation);
}

int run_probe(const Invocation& invocation) {
  return become_torch(invocation);  // it tells of the environment as it is
}

int run_eval(const EvalOptions&, const Invocation& invocation) {
  return hand_over(invocation);
}

int run_generate(const GenerateFlags&, const Invocation& invocation) {
  return hand_over(invocation);
}

int run_train(const TrainFlags& flags, const Invocation& invocation) {
  // Under another launcher (srun, torchrun, ...) this process is a rank already.
  return identify().launcher == Launcher::kAlone ? launch_training(flags) : hand_over(invocation);
}

int run_train_rank(const TrainRankFlags&, const Invocation& invocation) {
  return hand_over(invocation);
}

}  // namespace lockstep::cli
