// Any text as the JSON form of a trace: a refusal by place, or a trace that reads back and can be exported.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "lockstep/error.h"
#include "lockstep/trace/chrome.h"
#include "lockstep/trace/json.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace trace = lockstep::trace;
  using lockstep::fuzz::require;
  trace::Trace read;
  try {
    read = trace::parse_json({reinterpret_cast<const char*>(data), size});
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).starts_with("trace json"), "a refusal names the place");
    return 0;
  }
  require(trace::parse_json(trace::to_json(read)) == read, "a trace reads back to itself");
  const auto chrome = nlohmann::json::parse(trace::to_chrome(read));
  require(chrome["traceEvents"].size() >= read.spans.size(), "every span is exported");
  for (const auto& event : chrome["traceEvents"]) {
    if (event["ph"] == "X") require(event["ts"] >= 0 && event["dur"] >= 0, "no time is negative");
  }
  try {
    const trace::Trace merged = trace::merge({read});
    require(trace::merge({merged}) == merged, "a merged trace merges to itself");
  } catch (const lockstep::UsageError& refusal) {
    lockstep::fuzz::require_readable(refusal);
  }
  return 0;
}
