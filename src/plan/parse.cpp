#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/plan/stored.h"
#include "lockstep/plan/text.h"
#include "plan/check.h"
#include "plan/line.h"
#include "plan/names.h"
#include "plan/shown.h"

namespace lockstep::plan {

namespace {

Slots read_slots(Line& line) {
  if (line.take("slot")) return {line.number("slot"), 1};
  line.expect("slots");
  std::string_view range = line.word("range of slots");
  const int first = line.number_in(range, "slot");
  line.mark_in(range, "..", "range of slots");
  const int last = line.number_in(range, "last slot", first - 1);  // one before the first: none
  if (!range.empty()) line.refuse(fmt::format("'{}' after the range of slots", shown(range)));
  return {first, last - first + 1};
}

Places read_places(Line& line) {
  Places places;
  std::string_view times = line.word("number of places");
  places.count = line.number_in(times, "number of places");
  line.mark_in(times, "x", "number of places");
  if (!times.empty()) line.refuse(fmt::format("'{}' after the number of places", shown(times)));

  std::string_view where = line.word("places");
  places.rank = line.number_in(where, "rank");
  line.mark_in(where, ":", "places");
  places.slot = line.number_in(where, "slot");
  line.mark_in(where, "+", "places");
  places.rank_step = line.number_in(where, "step of ranks", -kLargestNumber);
  line.mark_in(where, ":", "places");
  places.slot_step = line.number_in(where, "step of slots", -kLargestNumber);
  if (!where.empty()) line.refuse(fmt::format("'{}' after the places", shown(where)));

  if (!line.take("except")) return places;
  std::string_view apart = line.word("place apart");
  places.except = line.number_in(apart, "place");
  line.mark_in(apart, "=", "place apart");
  places.except_slot = line.number_in(apart, "slot");
  if (!apart.empty()) line.refuse(fmt::format("'{}' after the place apart", shown(apart)));
  return places;
}

Step read_step(Line& line) {
  Step step{.round = line.number("round")};
  step.kind = line.one_of<Kind>("step");
  switch (step.kind) {
    case Kind::kPost:
      break;
    case Kind::kWait:
      step.peer = line.number("rank");
      line.expect("flag");
      step.flag = line.number("flag");
      break;
    case Kind::kCombine:
      step.sources = read_places(line);
      line.expect("to");
      step.destinations = read_places(line);
      line.expect("width");
      step.width = line.number("width");
      line.expect("chunk");
      step.chunk = line.number("chunk");
      break;
    case Kind::kCopy:
      step.slots = read_slots(line);
      line.expect("from");
      step.from = line.number("slot");
      step.chunk = line.take("chunk") ? line.number("chunk") : step.slots.first;
      break;
    case Kind::kSend:
    case Kind::kRecv:
    case Kind::kRecvReduce:
      step.peer = line.number("rank");
      step.slots = read_slots(line);
      step.chunk = line.take("chunk") ? line.number("chunk") : step.slots.first;
      break;
  }
  line.expect_end();
  return step;
}

Plan read_plan_header(Line& line) {
  Plan plan;
  line.expect("plan");
  plan.collective = line.one_of<Collective>("collective");
  const auto algorithm = line.word("the algorithm");
  if (!is_plain_word(algorithm)) line.refuse(fmt::format("'{}' is no algorithm's name", shown(algorithm)));
  plan.algorithm = algorithm;
  line.expect("world");
  plan.world = line.number("world", 1, kMostRanks);
  line.expect("root");
  plan.root = line.number("root", 0, plan.world - 1);
  line.expect("chunks");
  plan.chunks = line.number("number of chunks", 1);
  line.expect("slots");
  plan.slots = line.number("number of slots", 1);
  plan.division = line.one_of<Division>("division");
  line.expect("order");
  plan.order = line.one_of<Order>("order");
  line.expect("sends");
  plan.sends = line.one_of<Sends>("kind of sends");
  if (line.take("ranks_per_node")) plan.ranks_per_node = line.number("ranks per node", 1);
  line.expect_end();
  return plan;
}

/// Puts the lines together.
class PlanReader {
 public:
  void read(Line& line) {
    if (!has_header_) {
      plan_ = read_plan_header(line);
      has_header_ = true;
    } else if (line.take("rank")) {
      const int next = static_cast<int>(steps_.size());
      if (next == plan_.world) line.refuse(fmt::format("a rank after the last of {}", plan_.world));
      const int rank = line.number("rank");
      if (rank != next) line.refuse(fmt::format("rank {} instead of {}", rank, next));
      line.expect_end();
      steps_.emplace_back();
    } else {
      if (steps_.empty()) line.refuse("a step before 'rank 0'");
      if (++count_ > kMostPrintedSteps) line.refuse(fmt::format("more than {} steps", kMostPrintedSteps));
      steps_.back().push_back(read_step(line));
    }
  }

  Plan finish(const Line& last) {
    if (!has_header_) last.refuse("no plan; hint: the first line is 'plan COLLECTIVE ALGORITHM world N ...'");
    if (static_cast<int>(steps_.size()) < plan_.world) {
      last.refuse(fmt::format("the plan ends after {} of {} ranks", steps_.size(), plan_.world));
    }
    if (const auto problem = too_large(plan_, steps_); !problem.empty()) last.refuse(problem);
    return stored(std::move(plan_), std::move(steps_));
  }

 private:
  Plan plan_;
  std::vector<std::vector<Step>> steps_;
  int64_t count_ = 0;
  bool has_header_ = false;
};

}  // namespace

Plan parse(std::string_view text) {
  PlanReader reader;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line("plan text", text.substr(0, end), ++number);
    if (!line.done()) reader.read(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish(Line("plan text", "", std::max<int64_t>(number, 1)));
}

}  // namespace lockstep::plan
