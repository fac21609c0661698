#include "cli/define.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_completion(CLI::App&) {
  return [](const Invocation&) -> int { throw Error("completion is not written yet"); };
}

}  // namespace lockstep::cli
