#pragma once

#include <string>
#include <string_view>

#include "lockstep/trace/span.h"

namespace lockstep::trace {

/// The version that to_json writes and parse_json reads.
inline constexpr int kJsonVersion = 1;

/// The longest text that parse_json reads: 1 GiB, about ten million spans.
inline constexpr size_t kMostJsonBytes = size_t{1} << 30;

/// The JSON form of a trace, a span per line; parse_json() reads it back. What is no UTF-8 in a name becomes
/// U+FFFD.
///
///   {"lockstep_trace": 1,
///   "ranks": [
///   {"rank": 0, "host": "a", "job": "", "clock_offset_ns": 0, "monotonic_ns": 5, "wall_ns": 9, "dropped": 0}
///   ],
///   "spans": [
///   {"rank": 0, "stream": "communication", "name": "send 1 slot 1", "begin_ns": 10, "end_ns": 25,
///    "bytes": 4096, "peer": 1, "call": 812}
///   ]}
///
/// A span has `bytes` unless 0, `peer` and `call` unless -1.
std::string to_json(const Trace& trace);

/// Reads the JSON form, sorted anew. Fields of other names are ignored. Throws UsageError with the place and
/// the reason: `trace json /spans/3/end_ns: 5 is before begin_ns 7`.
Trace parse_json(std::string_view text);

}  // namespace lockstep::trace
