#pragma once

#include <string>

#include "lockstep/launch/identity.h"

namespace lockstep::launch {

using lockstep::Environment;

/// This process's own.
Environment current_environment();

/// Throws UsageError if `name` is a variable by which a rank knows who it is: only the launcher may set it.
void refuse_identity(const std::string& name, const std::string& value);

/// Throws UsageError unless `value` is a positive number of threads; OMP_NUM_THREADS may have one for each
/// level of nesting (`4,2`).
void require_threads(const std::string& name, const std::string& value);

}  // namespace lockstep::launch
