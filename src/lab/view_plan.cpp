#include "lab/view_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"
#include "lockstep/plan/grid.h"
#include "lockstep/plan/json.h"
#include "lockstep/plan/pipeline_json.h"
#include "lockstep/plan/pipeline_simulate.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::lab {

namespace {

constexpr int kElementBytes = 4;

/// The words of a plan: `allreduce --algorithm ring --world 4`.
class Words {
 public:
  explicit Words(const std::string& text) {
    std::istringstream stream(text);
    stream >> what_;
    for (std::string flag, value; stream >> flag;) {
      if (!flag.starts_with("--") || !(stream >> value))
        throw UsageError(fmt::format("{}: expected flags, each with its value", flag));
      values_.emplace_back(flag.substr(2), value);
    }
  }

  const std::string& what() const { return what_; }
  std::string text(const std::string& flag) const {
    const auto found = find(flag);
    if (found == values_.end()) throw UsageError(fmt::format("--{} is missing", flag));
    return found->second;
  }
  int64_t number(const std::string& flag, int64_t otherwise) const {
    const auto found = find(flag);
    if (found == values_.end()) return otherwise;
    const auto& value = found->second;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      throw UsageError(fmt::format("--{} {}: not a number", flag, value));
    return number;
  }
  void set(const std::string& flag, int64_t number) {
    const auto found = std::ranges::find(values_, flag, &Values::value_type::first);
    (found == values_.end() ? values_.emplace_back(flag, "") : *found).second = std::to_string(number);
  }

  std::string joined() const {
    std::string text = what_;
    for (const auto& [flag, value] : values_) text += fmt::format(" --{} {}", flag, value);
    return text;
  }

 private:
  using Values = std::vector<std::pair<std::string, std::string>>;

  Values::const_iterator find(const std::string& flag) const {
    return std::ranges::find(values_, flag, &Values::value_type::first);
  }

  std::string what_;
  Values values_;  // in the order of the words
};

/// How many floats of the watched buffers the messages touch.
int64_t touched(const nlohmann::json& trace) {
  int64_t count = 0;
  for (const auto& event : trace.at("events")) {
    const auto place = event.at("place").get<int64_t>();
    if (place >= 0) count = std::max(count, place + event.at("count").get<int64_t>());
  }
  return count;
}

/// The link that explains every send of the trace, in microseconds; none if there is no such link, or if
/// ranks also computed, which no plan of a collective does.
std::optional<plan::Link> link_of(const nlohmann::json& trace) {
  struct Send {
    double bytes, us;
  };
  std::vector<Send> sends;
  for (const auto& event : trace.at("events")) {
    if (event.at("kind") == "compute") return std::nullopt;
    if (event.at("kind") != "send") continue;
    sends.push_back({event.at("count").get<double>() * kElementBytes,
                     event.at("end").get<double>() - event.at("start").get<double>()});
  }
  if (sends.empty()) return std::nullopt;
  plan::Link link{.latency_s = sends.front().us, .s_per_byte = 0};
  const auto other =
      std::ranges::find_if(sends, [&](const Send& send) { return send.bytes != sends.front().bytes; });
  if (other != sends.end()) {
    link.s_per_byte = (other->us - sends.front().us) / (other->bytes - sends.front().bytes);
    link.latency_s -= link.s_per_byte * sends.front().bytes;
  }
  const bool explains = std::ranges::all_of(sends, [&](const Send& send) {
    return std::abs(link.latency_s + send.bytes * link.s_per_byte - send.us) < 1e-6 * (1 + send.us);
  });
  return explains && link.latency_s > -1e-9 && link.s_per_byte > -1e-12 ? std::optional(link) : std::nullopt;
}

nlohmann::json collective_beside(Words words, const nlohmann::json& trace) {
  const auto world = trace.at("world").get<int>();
  bool is_count_known = true;
  if (words.number("world", 4) != world) {
    words.set("world", world);
    is_count_known = touched(trace) > 0;
    if (is_count_known) words.set("count", touched(trace));
  }
  const auto count = words.number("count", touched(trace));
  const auto root = static_cast<int>(words.number("root", 0));
  const auto plan = plan::make_plan(plan::find_collective(words.what()), words.text("algorithm"),
                                    {.world = world,
                                     .root = std::min(root, world - 1),
                                     .ranks_per_node = static_cast<int>(words.number("ranks-per-node", 1))});
  auto json = nlohmann::json::parse(plan::to_json(plan));
  const auto rows = plan::grid_rows(plan);
  json["sent"] = nlohmann::json::array();
  for (int rank = 0; rank < world; ++rank) {
    const auto steps = plan.steps(rank);
    int64_t bytes = 0, messages = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto& step = steps[i];
      auto& shown = json["ranks"][static_cast<size_t>(rank)][i];
      shown["row"] = rows[static_cast<size_t>(rank)][i];
      if (step.is_local()) continue;
      const auto elements = plan::chunk_elements(plan, count, step.chunk, step.slots.count);
      // Where each rank has a part of its own, a chunk's place depends on how the buffer is laid out.
      const bool is_in_place = step.slots.first == step.chunk && plan.division == plan::Division::kSplit;
      shown["begin"] = is_in_place ? plan::chunk_begin(plan, count, step.chunk) : -1;
      shown["elements"] = elements;
      if (!step.is_send() || elements == 0) continue;
      bytes += elements * kElementBytes;
      ++messages;
    }
    json["sent"].push_back({{"messages", messages}});
    if (is_count_known) json["sent"].back()["bytes"] = bytes;
  }
  json["family"] = "collective";
  json["words"] = words.joined();
  json["count"] = is_count_known ? nlohmann::json(count) : nlohmann::json();
  json["time_us"] = nullptr;
  // In microseconds throughout: the clock has no unit.
  if (const auto link = link_of(trace); link && is_count_known)
    json["time_us"] = plan::simulate(plan, {.between = *link}, count, kElementBytes).time_s;
  return json;
}

nlohmann::json pipeline_beside(Words words, const nlohmann::json& trace) {
  const auto world = trace.at("world").get<int>();
  if (words.number("stages", 4) != world) words.set("stages", world);
  const auto& schedule = plan::find_schedule(words.text("schedule"));
  const auto plan = plan::make_pipeline_plan(
      schedule.name, {.ranks = world,
                      .microbatches = static_cast<int>(words.number("microbatches", 8)),
                      .chunks = static_cast<int>(words.number("chunks", schedule.interleaves ? 2 : 1))});
  auto json = nlohmann::json::parse(plan::to_json(plan));
  const auto simulation = plan::simulate_pipeline(plan);
  json["sent"] = nlohmann::json::array();
  for (size_t rank = 0; rank < plan.actions.size(); ++rank) {
    int64_t messages = 0;
    for (size_t i = 0; i < plan.actions[rank].size(); ++i) {
      json["actions"][rank][i]["start"] = simulation.actions[rank][i].start;
      json["actions"][rank][i]["end"] = simulation.actions[rank][i].end;
      if (plan.actions[rank][i].is_send()) ++messages;
    }
    json["sent"].push_back({{"messages", messages}});
  }
  json["family"] = "pipeline";
  json["words"] = words.joined();
  json["makespan"] = simulation.makespan;
  json["bubble_of_total"] = simulation.bubble_of_total;
  return json;
}

}  // namespace

nlohmann::json plan_beside(const std::string& words, const nlohmann::json& trace) {
  const Words parsed(words);
  if (parsed.what().empty()) return nullptr;
  return parsed.what() == "pipeline" ? pipeline_beside(parsed, trace) : collective_beside(parsed, trace);
}

}  // namespace lockstep::lab
