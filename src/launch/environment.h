#pragma once

#include "lockstep/launch/identity.h"

namespace lockstep::launch {

using lockstep::Environment;

/// This process's own.
Environment current_environment();

}  // namespace lockstep::launch
