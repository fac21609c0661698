#pragma once

#include <string>

#include "lockstep/trace/span.h"

namespace lockstep::trace {

/// The trace in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open: complete events
/// ("ph": "X") in microseconds on the common clock since the first span; that moment is otherData.origin_ns.
///
/// A rank is a process, pid rank + 1; a stream is a thread, tid 1 + stream: Perfetto takes 0 for the idle
/// process. Viewers want events of a thread to nest; spans that overlap otherwise (a round sends and
/// receives at once) are shown on further threads, tid 5 and up. Dropped spans are told by the process's
/// label.
std::string to_chrome(const Trace& trace);

}  // namespace lockstep::trace
