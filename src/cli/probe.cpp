#include "cli/torch_verbs.h"

namespace lockstep::cli {

int run_probe(const Invocation&) {
  return 0;
}

}  // namespace lockstep::cli
