#include <memory>

#include "cli/bench_allocator.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

Action define_bench_allocator(Flags flags) {
  const auto options = std::make_shared<BenchAllocatorOptions>();
  flags.number("--dim", options->dim, 1, 8192, "Width of every layer");
  flags.number("--depth", options->depth, 1, 1000, "Linear layers");
  flags.number("--batch", options->batch, 1, 100'000, "Samples a step");
  flags.number("--steps", options->steps, 1, 10'000, "Steps a round");
  flags.number("--rounds", options->rounds, 1, 1000, "Rounds of each allocator");
  options->json.add_to(flags);
  return [options](const Invocation& invocation) { return run_bench_allocator(*options, invocation); };
}

}  // namespace lockstep::cli
