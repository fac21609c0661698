#include "lockstep/comms/shared_memory.h"

#include "transport/process_arena.h"

namespace lockstep {

SharedMemoryUse shared_memory_use() {
  const auto use = transport::use_of_process_arenas();
  return {use.used_bytes, use.peak_used_bytes, use.held_bytes};
}

void restart_shared_memory_peak() {
  transport::restart_peak_of_process_arenas();
}

void trim_shared_memory() {
  transport::trim_process_arenas();
}

}  // namespace lockstep
