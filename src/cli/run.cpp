#include "cli/define.h"
#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_run(Flags) {
  return [](const Invocation&) -> int { throw Error("run is not written yet"); };
}

}  // namespace lockstep::cli
