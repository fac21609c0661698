#include "cli/define.h"
#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_bench_blas(Flags) {
  return [](const Invocation&) -> int { throw Error("bench_blas is not written yet"); };
}

}  // namespace lockstep::cli
