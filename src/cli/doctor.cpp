#include "cli/define.h"
#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_doctor(Flags) {
  return [](const Invocation&) -> int { throw Error("doctor is not written yet"); };
}

}  // namespace lockstep::cli
