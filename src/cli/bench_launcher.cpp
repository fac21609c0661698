#include "cli/define.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_bench_launcher(CLI::App&) {
  return [](const Invocation&) -> int { throw Error("bench_launcher is not written yet"); };
}

}  // namespace lockstep::cli
