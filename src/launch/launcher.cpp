#include "launch/launcher.h"

#include "launch/guard.h"

namespace lockstep::launch {

int launch_job(const Job& job, const Environment& inherited, const Console& console) {
  return run_guarded("lockstep run", [&](pid_t front) { return keep_job(job, inherited, console, front); });
}

}  // namespace lockstep::launch
