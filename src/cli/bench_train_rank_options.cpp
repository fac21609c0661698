#include <memory>

#include "cli/bench_train_rank.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

Action define_bench_train_rank(Flags flags) {
  const auto options = std::make_shared<TrainBenchRankOptions>();
  flags.word("folder", options->folder, "Where the benchmark left its request", true);
  return [options](const Invocation& invocation) { return run_bench_train_rank(*options, invocation); };
}

}  // namespace lockstep::cli
