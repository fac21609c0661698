#include <memory>

#include "cli/bench_overlap.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

Action define_bench_overlap(Flags flags) {
  const auto options = std::make_shared<BenchOverlapOptions>();
  flags.number("--dim", options->dim, 1, 8192, "Width of every layer");
  flags.number("--depth", options->depth, 1, 1000, "Linear layers");
  flags.number("--batch", options->batch, 0, 100'000,
               "Samples of each rank; 0 finds where backward takes as long as communication");
  flags.number("--bucket-cap-mib", options->bucket_cap_mib, 1e-6, 1e6, "When a bucket is closed");
  flags.number("--rounds", options->rounds, 1, 1000, "Rounds of each way");
  options->json.add_to(flags);
  return [options](const Invocation& invocation) { return run_bench_overlap(*options, invocation); };
}

}  // namespace lockstep::cli
