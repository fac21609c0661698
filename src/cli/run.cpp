#include "cli/define.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_run(CLI::App&) {
  return [](const Invocation&) -> int { throw Error("run is not written yet"); };
}

}  // namespace lockstep::cli
