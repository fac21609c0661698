#include "cli/machine.h"

namespace lockstep::cli {

launch::MachineFacts look_at_machine(const launch::Environment& environment) {
  const launch::OpenBlas openblas = launch::probe_openblas(environment);
  return {.cores = launch::allowed_cores(),
          .usable_cores = launch::usable_cores(),
          .blas = launch::choose_coretype(launch::detect_cpu(), openblas, environment)};
}

}  // namespace lockstep::cli
