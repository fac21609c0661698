#include "lockstep/trace/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include "trace/json_text.h"

namespace lockstep::trace {

namespace {

constexpr int kStreams = static_cast<int>(kStreamNames.size());

/// Distributes the spans of a stream, which come by begin, over lanes in each of which they nest.
class Lanes {
 public:
  /// The first lane where the span lies inside what is open, or after it; the last takes what is left.
  int lane_of(const Span& span) {
    constexpr size_t kMost = 64;
    size_t lane = 0;
    while (!fits(lane, span) && lane + 1 < kMost) ++lane;
    open_[lane].push_back(span.end_ns);
    return static_cast<int>(lane);
  }

  int count() const { return static_cast<int>(open_.size()); }

 private:
  bool fits(size_t lane, const Span& span) {
    if (lane == open_.size()) open_.emplace_back();
    std::vector<int64_t>& ends = open_[lane];
    while (!ends.empty() && ends.back() <= span.begin_ns) ends.pop_back();
    return ends.empty() || ends.back() >= span.end_ns;
  }

  std::vector<std::vector<int64_t>> open_;  // By lane: the ends of the open spans, the innermost last.
};

class Document {
 public:
  explicit Document(const Trace& trace) {
    for (const RankRecord& rank : trace.ranks) offsets_[rank.rank] = rank.clock_offset_ns;
    if (!trace.spans.empty()) origin_ns_ = begin_of(trace.spans.front());
    for (const Span& span : trace.spans) origin_ns_ = std::min(origin_ns_, begin_of(span));
    for (const RankRecord& rank : trace.ranks) add_rank(rank);
    for (const Span& span : trace.spans) add_span(span);
    for (const auto& [place, lanes] : lanes_) add_threads(place.first, place.second, lanes.count());
  }

  std::string text() && {
    return fmt::format(
        "{{\"traceEvents\": [{}\n],\n\"displayTimeUnit\": \"ns\",\n\"otherData\": {{\"origin_ns\": {}}}}}\n",
        events_, origin_ns_);
  }

 private:
  int64_t begin_of(const Span& span) { return span.begin_ns + offsets_[span.rank]; }

  static int64_t pid_of(int rank) { return int64_t{rank} + 1; }

  static int tid_of(Stream stream, int lane) { return 1 + static_cast<int>(stream) + lane * kStreams; }

  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    events_ += events_.empty() ? "\n{" : ",\n{";
    fmt::format_to(std::back_inserter(events_), format, std::forward<Arguments>(arguments)...);
    events_ += '}';
  }

  void add_rank(const RankRecord& rank) {
    std::string title = fmt::format("rank {}", rank.rank);
    if (!rank.host.empty()) title += " on " + rank.host;
    const int64_t pid = pid_of(rank.rank);
    add(R"("ph": "M", "name": "process_name", "pid": {}, "args": {{"name": {}}})", pid, json_text(title));
    add(R"("ph": "M", "name": "process_sort_index", "pid": {}, "args": {{"sort_index": {}}})", pid,
        rank.rank);
    if (rank.dropped == 0) return;
    add(R"("ph": "M", "name": "process_labels", "pid": {}, "args": {{"labels": "{} older spans were dropped"}})",
        pid, rank.dropped);
  }

  void add_threads(int rank, Stream stream, int lanes) {
    constexpr int kMostLanes = 1000;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::string title =
          lane == 0 ? std::string(name(stream)) : fmt::format("{} {}", name(stream), lane + 1);
      add(R"("ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": "{}"}})", pid_of(rank),
          tid_of(stream, lane), title);
      add(R"("ph": "M", "name": "thread_sort_index", "pid": {}, "tid": {}, "args": {{"sort_index": {}}})",
          pid_of(rank), tid_of(stream, lane), static_cast<int>(stream) * kMostLanes + lane);
    }
  }

  void add_span(const Span& span) {
    constexpr int64_t kNsPerUs = 1000;
    const int64_t begin = begin_of(span) - origin_ns_;
    const int64_t duration = span.end_ns - span.begin_ns;
    std::string details;
    const auto detail = [&](const char* key, int64_t value) {
      fmt::format_to(std::back_inserter(details), "{}\"{}\": {}", details.empty() ? "" : ", ", key, value);
    };
    if (span.bytes != 0) detail("bytes", span.bytes);
    if (span.peer != -1) detail("peer", span.peer);
    if (span.call != -1) detail("call", span.call);
    // Written as decimal fractions by hand: a double would lose nanoseconds.
    add(R"("ph": "X", "name": {}, "cat": "{}", "pid": {}, "tid": {}, "ts": {}.{:03}, "dur": {}.{:03}, "args": {{{}}})",
        json_text(span.name), name(span.stream), pid_of(span.rank),
        tid_of(span.stream, lanes_[{span.rank, span.stream}].lane_of(span)), begin / kNsPerUs,
        begin % kNsPerUs, duration / kNsPerUs, duration % kNsPerUs, details);
  }

  std::unordered_map<int, int64_t> offsets_;
  std::map<std::pair<int, Stream>, Lanes> lanes_;
  int64_t origin_ns_ = 0;
  std::string events_;
};

}  // namespace

std::string to_chrome(const Trace& trace) {
  return Document(trace).text();
}

}  // namespace lockstep::trace
