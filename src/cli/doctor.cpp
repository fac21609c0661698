#include "cli/define.h"
#include "lockstep/error.h"

namespace lockstep::cli {

Action define_doctor(CLI::App&) {
  return [](const Invocation&) -> int { throw Error("doctor is not written yet"); };
}

}  // namespace lockstep::cli
