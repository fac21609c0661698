#include <memory>

#include "cli/bench_ddp_rank.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

Action define_bench_ddp_rank(Flags flags) {
  const auto options = std::make_shared<DdpRankOptions>();
  flags.word("folder", options->folder, "Where the benchmark left its request", true);
  flags.word_of("system", options->system, {"lockstep", "libtorch"}, "Which system this is a rank of");
  return [options](const Invocation& invocation) { return run_bench_ddp_rank(*options, invocation); };
}

}  // namespace lockstep::cli
