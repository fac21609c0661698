#include "lockstep/trace/span.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "trace/json_text.h"

namespace lockstep::trace {

namespace {

int64_t shifted(int64_t time_ns, const RankRecord& rank) {
  const int64_t result = time_ns + rank.clock_offset_ns;
  if (result < -kLargest || result > kLargest) {
    throw UsageError(fmt::format("trace merge: rank {}: {} ns with clock offset {} ns is not within {} ns",
                                 rank.rank, time_ns, rank.clock_offset_ns, kLargest));
  }
  return result;
}

}  // namespace

void sort(Trace& trace) {
  std::ranges::stable_sort(trace.ranks, {}, &RankRecord::rank);
  std::ranges::stable_sort(trace.spans, [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
}

Trace merge(const std::vector<Trace>& traces) {
  Trace merged;
  std::string job;
  for (const Trace& trace : traces) {
    for (const RankRecord& rank : trace.ranks) {
      if (std::ranges::count(merged.ranks, rank.rank, &RankRecord::rank) > 0) {
        throw UsageError(fmt::format(
            "trace merge: rank {} is there twice; hint: merge each rank's trace of one run", rank.rank));
      }
      if (job.empty()) job = rank.job;
      if (!rank.job.empty() && rank.job != job) {
        throw UsageError(fmt::format(
            "trace merge: rank {} is of job {}, ranks before it of job {}; hint: an older run left "
            "files in the folder",
            rank.rank, shown(rank.job), shown(job)));
      }
      RankRecord& added = merged.ranks.emplace_back(rank);
      added.monotonic_ns = shifted(rank.monotonic_ns, rank);
      added.clock_offset_ns = 0;
    }
    for (const Span& span : trace.spans) {
      Span& added = merged.spans.emplace_back(span);
      const auto rank = std::ranges::find(trace.ranks, span.rank, &RankRecord::rank);
      if (rank == trace.ranks.end()) {
        throw UsageError(
            fmt::format("trace merge: a span of rank {}, which its trace does not list", span.rank));
      }
      added.begin_ns = shifted(span.begin_ns, *rank);
      added.end_ns = shifted(span.end_ns, *rank);
    }
  }
  sort(merged);
  return merged;
}

}  // namespace lockstep::trace
