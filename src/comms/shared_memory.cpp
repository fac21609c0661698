#include "lockstep/comms/shared_memory.h"

#include "transport/process_arena.h"

namespace lockstep {

SharedMemoryUse shared_memory_use() {
  const auto use = transport::process_arena()->use();
  return {use.used_bytes, use.peak_used_bytes, use.held_bytes};
}

void trim_shared_memory() {
  transport::process_arena()->trim();
}

}  // namespace lockstep
