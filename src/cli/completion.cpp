#include "cli/define.h"
#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_completion(Flags) {
  return [](const Invocation&) -> int { throw Error("completion is not written yet"); };
}

}  // namespace lockstep::cli
