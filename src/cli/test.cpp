#include "cli/define.h"
#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_test(Flags) {
  return [](const Invocation&) -> int { throw Error("test is not written yet"); };
}

}  // namespace lockstep::cli
