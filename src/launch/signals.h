#pragma once

#include <signal.h>

namespace lockstep::launch {

/// The signals that the launcher's two processes block and take one by one.
const sigset_t& launcher_signals();

}  // namespace lockstep::launch
