#include "cli/torch_verbs.h"

namespace lockstep::cli {

int run_train(const TrainOptions&, const Invocation&) {
  return 0;
}

}  // namespace lockstep::cli
