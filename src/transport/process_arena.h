#pragma once

#include <memory>

#include "launch/kernel.h"
#include "transport/arena.h"

namespace lockstep::transport {

/// The arena of this process, from which its shared jobs and its tensors take their memory; made when first
/// asked for. After the failure of a job that used it, and in a forked child, there is another one: the old
/// one is kept, since what lies in it may still be used.
/// `ranks` on this host map each other's; 0: as many as the host has cores.
std::shared_ptr<Arena> process_arena(int ranks = 0);

/// Addresses of one of so many arenas on a host. Eight times the memory: freed blocks between used ones do
/// not make long runs of addresses scarce. Less, so that every rank can map all of them in 47 bits, in half
/// of `ulimit -v`, and within `ulimit -f`; at least 64 MiB.
size_t arena_span_bytes(uint64_t memory_bytes, int ranks, const launch::Limits& limits);

/// Of all arenas that this process has had.
Arena::Use use_of_process_arenas();
void restart_peak_of_process_arenas();
void trim_process_arenas();

/// In today's process_arena(). Throws Error if memory is short.
void* allocate_in_process_arena(size_t bytes);
/// In whichever it was. Throws Error for memory that was not allocated there.
void deallocate_in_process_arena(void* memory);

}  // namespace lockstep::transport
