#include "lockstep/trace/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "lockstep/error.h"
#include "trace/json_text.h"

namespace lockstep::trace {

namespace {

using Json = nlohmann::json;

constexpr int64_t kLatest = std::numeric_limits<int64_t>::max();
constexpr int64_t kLargestRank = std::numeric_limits<int>::max();

[[noreturn]] void refuse(std::string_view path, std::string_view reason) {
  throw UsageError(fmt::format("trace json {}: {}", path, reason));
}

/// A JSON object and where it stands.
class Node {
 public:
  Node(const Json& value, std::string path) : value_(value), path_(std::move(path)) {
    if (!value_.is_object()) refuse(place(), fmt::format("{} is no object", shown(value_)));
  }

  [[noreturn]] void refuse_field(const char* key, std::string_view reason) const {
    refuse(fmt::format("{}/{}", path_, key), reason);
  }

  int64_t number(const char* key, int64_t low, int64_t high) const {
    const Json& value = at(key);
    if (!value.is_number_integer()) refuse_field(key, fmt::format("{} is no whole number", shown(value)));
    // Unsigned numbers beyond the signed range would turn negative.
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kLatest};
    const int64_t found = huge ? 0 : value.get<int64_t>();
    if (huge || found < low || found > high) {
      refuse_field(key, fmt::format("{} is not between {} and {}", value.dump(), low, high));
    }
    return found;
  }

  int64_t number_or(const char* key, int64_t low, int64_t high, int64_t absent) const {
    return value_.contains(key) ? number(key, low, high) : absent;
  }

  const std::string& text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) refuse_field(key, fmt::format("{} is no text", shown(value)));
    return value.get_ref<const std::string&>();
  }

  const Json& at(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) refuse(place(), fmt::format("'{}' is missing", key));
    return *found;
  }

 private:
  std::string_view place() const { return path_.empty() ? "/" : std::string_view(path_); }

  const Json& value_;
  std::string path_;
};

Span read_span(const Node& node) {
  Span span{.name = node.text("name"),
            .rank = static_cast<int>(node.number("rank", 0, kLargestRank)),
            .begin_ns = node.number("begin_ns", -kLargest, kLargest),
            .end_ns = node.number("end_ns", -kLargest, kLargest),
            .bytes = node.number_or("bytes", 0, kLargest, 0),
            .peer = static_cast<int>(node.number_or("peer", -1, kLargestRank, -1)),
            .call = node.number_or("call", -1, kLargest, -1)};
  const auto stream = std::ranges::find(kStreamNames, node.text("stream"));
  if (stream == kStreamNames.end()) {
    node.refuse_field("stream", fmt::format("{} is unknown; hint: compute, communication, progress or user",
                                            shown(node.at("stream"))));
  }
  span.stream = static_cast<Stream>(stream - kStreamNames.begin());
  if (span.end_ns < span.begin_ns) {
    node.refuse_field("end_ns", fmt::format("{} is before begin_ns {}", span.end_ns, span.begin_ns));
  }
  return span;
}

RankRecord read_rank(const Node& node) {
  return {.rank = static_cast<int>(node.number("rank", 0, kLargestRank)),
          .host = node.text("host"),
          .job = node.text("job"),
          .clock_offset_ns = node.number("clock_offset_ns", -kLargest, kLargest),
          .monotonic_ns = node.number("monotonic_ns", -kLargest, kLargest),
          .wall_ns = node.number("wall_ns", 0, kLatest),
          .dropped = node.number("dropped", 0, kLargest)};
}

void check_version(const Json& version) {
  if (version != kJsonVersion) {
    refuse("/lockstep_trace", fmt::format("version {} instead of {}", shown(version), kJsonVersion));
  }
}

/// Takes spans out of the document while it is being read: as JSON values they would need ten times the
/// memory.
class SpanTaker {
 public:
  explicit SpanTaker(std::vector<Span>& spans) : spans_(spans) {}

  /// Whether the reader shall keep what it has just read; `depth` is 1 for what the document itself holds.
  bool keep(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    const bool is_start = event == Event::object_start || event == Event::array_start;
    if (depth == 0 && event == Event::array_start) refuse("/", "is no object");
    if (depth == 1 && event == Event::key) {
      key_ = parsed.get<std::string>();
      return key_ == "lockstep_trace" || key_ == "ranks" || key_ == "spans";
    }
    if (depth == 1 && event == Event::value && key_ == "lockstep_trace") check_version(parsed);
    if (key_ != "spans" || is_start) {
      if (depth == 1 && key_ == "spans" && event == Event::object_start) refuse("/spans", "is no array");
      return true;
    }
    if (depth != 2 || event == Event::key) return true;
    spans_.push_back(read_span({parsed, fmt::format("/spans/{}", spans_.size())}));
    return false;
  }

 private:
  std::vector<Span>& spans_;
  std::string key_;
};

Json read_document(std::string_view text, std::vector<Span>& spans) {
  SpanTaker taker(spans);
  try {
    return Json::parse(text, [&](int depth, Json::parse_event_t event, const Json& parsed) {
      return taker.keep(depth, event, parsed);
    });
  } catch (const Json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    throw UsageError(fmt::format("trace json line {}: no valid JSON from here on",
                                 1 + std::count(text.begin(), end, '\n')));
  } catch (const Json::out_of_range&) {
    throw UsageError("trace json: a number is out of range");
  }
}

}  // namespace

std::string to_json(const Trace& trace) {
  std::string text = fmt::format("{{\"lockstep_trace\": {},\n\"ranks\": [", kJsonVersion);
  const auto out = std::back_inserter(text);
  const char* separator = "\n";
  for (const RankRecord& rank : trace.ranks) {
    fmt::format_to(out,
                   R"({}{{"rank": {}, "host": {}, "job": {}, "clock_offset_ns": {}, "monotonic_ns": {}, )"
                   R"("wall_ns": {}, "dropped": {}}})",
                   std::exchange(separator, ",\n"), rank.rank, json_text(rank.host), json_text(rank.job),
                   rank.clock_offset_ns, rank.monotonic_ns, rank.wall_ns, rank.dropped);
  }
  text += "\n],\n\"spans\": [";
  separator = "\n";
  for (const Span& span : trace.spans) {
    fmt::format_to(out, R"({}{{"rank": {}, "stream": "{}", "name": {}, "begin_ns": {}, "end_ns": {})",
                   std::exchange(separator, ",\n"), span.rank, name(span.stream), json_text(span.name),
                   span.begin_ns, span.end_ns);
    if (span.bytes != 0) fmt::format_to(out, ", \"bytes\": {}", span.bytes);
    if (span.peer != -1) fmt::format_to(out, ", \"peer\": {}", span.peer);
    if (span.call != -1) fmt::format_to(out, ", \"call\": {}", span.call);
    text += '}';
  }
  text += "\n]}\n";
  return text;
}

Trace parse_json(std::string_view text) {
  if (text.size() > kMostJsonBytes) {
    throw UsageError(fmt::format("trace json: {} bytes, more than {}", text.size(), kMostJsonBytes));
  }
  Trace trace;
  const Json document = read_document(text, trace.spans);
  const Node root(document, "");
  check_version(root.at("lockstep_trace"));
  if (!root.at("spans").is_array()) root.refuse_field("spans", "is no array");
  const Json& ranks = root.at("ranks");
  if (!ranks.is_array()) root.refuse_field("ranks", "is no array");
  std::unordered_set<int> known;
  for (const Json& rank : ranks) {
    const Node node(rank, fmt::format("/ranks/{}", trace.ranks.size()));
    trace.ranks.push_back(read_rank(node));
    if (!known.insert(trace.ranks.back().rank).second) node.refuse_field("rank", "is there twice");
  }
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    if (known.contains(trace.spans[i].rank)) continue;
    refuse(fmt::format("/spans/{}/rank", i), fmt::format("{} is not among the ranks", trace.spans[i].rank));
  }
  sort(trace);
  return trace;
}

}  // namespace lockstep::trace
