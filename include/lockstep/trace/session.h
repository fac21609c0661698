#pragma once

#include <cstdint>
#include <string>

#include "lockstep/trace/span.h"

/// Turning tracing on and off, for the whole process. Any thread may call any of it.
namespace lockstep::trace {

struct Options {
  /// Of threads that did not call set_rank.
  int rank = 0;
  /// Each thread keeps its newest spans, so many, at 40 bytes each; older ones are counted as dropped. A
  /// thread that ends leaves its spans, and its ring to the next new thread of the same rank.
  int64_t most_spans_per_thread = 65536;
  /// The job's name, alike on all ranks; a merge refuses ranks of different jobs.
  std::string job = {};
};

/// Starts recording, from nothing. Throws UsageError if it is on already, or if an option is out of bounds.
void start(const Options& options = {});

/// What was recorded since start(), while others go on recording; empty if tracing is off.
Trace collect();

/// Stops recording and gives what was recorded; empty if tracing is off. After start_from_environment() it
/// also writes the files, and throws Error if one cannot be written.
Trace stop();

/// If LOCKSTEP_TRACE names a folder, starts recording; stop(), or else a normal end of the process, writes
/// folder/rank_<rank>.json. Returns whether tracing is on for that folder. Sets the calling thread's rank.
///
/// Where ranks are threads each calls it, and each gets its file. The folder is made if need be; UsageError
/// says that it cannot be. A process that is killed, or ends by an uncaught exception, writes nothing.
bool start_from_environment(int rank);

/// What must be added to this process's clock to give the common one, once that is known: see
/// RankRecord::clock_offset_ns. Lasts until the next start().
void set_clock_offset_ns(int64_t offset_ns);

}  // namespace lockstep::trace
