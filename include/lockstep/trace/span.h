#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::trace {

/// Where in a rank a span ran: one row of a timeline.
enum class Stream : uint8_t {
  kCompute,        ///< Forward, backward, the actions of a pipeline.
  kCommunication,  ///< Collectives on the caller's thread.
  kProgress,       ///< Collectives on the progress thread.
  kUser,           ///< What a program names itself: "optimizer", "data".
};

/// The names of the streams, in the order of the enumeration.
inline constexpr std::array<std::string_view, 4> kStreamNames = {"compute", "communication", "progress",
                                                                 "user"};

inline constexpr std::string_view name(Stream stream) {
  return kStreamNames[static_cast<size_t>(stream)];
}

/// Times on the clock of the spans, offsets and sizes lie within plus or minus this many nanoseconds (36
/// years) or bytes, so that sums and differences of them do not overflow.
inline constexpr int64_t kLargest = int64_t{1} << 60;

/// Something that a rank did from `begin_ns` to `end_ns`.
struct Span {
  std::string name = {};  ///< A step as its plan prints it, a collective, an action, or the user's own word.
  int rank = 0;
  Stream stream = Stream::kUser;
  int64_t begin_ns = 0;  ///< CLOCK_MONOTONIC: all processes of a host share it.
  int64_t end_ns = 0;    ///< Not before begin_ns.
  int64_t bytes = 0;     ///< Moved or reduced; 0 if that does not apply.
  int peer = -1;         ///< The other rank; -1 if there is none.
  int64_t call = -1;  ///< Number of the collective call or training step that it belongs to, or a message's
                      ///< tag; -1 for none.
  bool operator==(const Span&) const = default;
};

/// What is known of a rank beside its spans.
struct RankRecord {
  int rank = 0;
  std::string host = {};
  std::string job = {};         ///< Alike on all ranks of a job; empty if it has no name.
  int64_t clock_offset_ns = 0;  ///< Added to the rank's times it gives the common clock; 0 on one host.
  int64_t monotonic_ns = 0;     ///< A moment on the clock of the spans ...
  int64_t wall_ns = 0;          ///< ... and the same moment as nanoseconds since 1970.
  int64_t dropped = 0;          ///< Spans that were recorded and overwritten by newer ones.
  bool operator==(const RankRecord&) const = default;
};

/// The spans of one or several ranks, by begin; of two that begin together the longer comes first, so that
/// what contains comes before what it contains.
struct Trace {
  std::vector<RankRecord> ranks = {};  ///< Ascending, each once. Every span's rank is among them.
  std::vector<Span> spans = {};
  bool operator==(const Trace&) const = default;
};

/// Brings ranks and spans into the order of a Trace; equal ones keep theirs.
void sort(Trace& trace);

/// One trace of several. Times of the result are on the common clock, and its offsets are 0. Throws
/// UsageError if two traces have the same rank or are of different jobs.
Trace merge(const std::vector<Trace>& traces);

}  // namespace lockstep::trace
