#include "lockstep/plan/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/plan/stored.h"
#include "lockstep/plan/text.h"
#include "plan/check.h"
#include "plan/json_node.h"
#include "plan/names.h"
#include "plan/shown.h"

namespace lockstep::plan {

namespace {

Json places_json(const Places& places) {
  Json json = {{"rank", places.rank},
               {"rank_step", places.rank_step},
               {"slot", places.slot},
               {"slot_step", places.slot_step},
               {"count", places.count}};
  if (places.except >= 0) {
    json["except"] = places.except;
    json["except_slot"] = places.except_slot;
  }
  return json;
}

Json step_json(const Step& step) {
  Json json = {{"round", step.round}, {"kind", name(step.kind)}, {"text", to_string(step)}};
  if (step.kind == Kind::kPost) return json;
  if (step.kind == Kind::kWait) {
    json["peer"] = step.peer;
    json["flag"] = step.flag;
    return json;
  }
  json["chunk"] = step.chunk;
  if (step.kind == Kind::kCombine) {
    json["width"] = step.width;
    json["sources"] = places_json(step.sources);
    json["destinations"] = places_json(step.destinations);
    return json;
  }
  json["slot"] = step.slots.first;
  json["slots"] = step.slots.count;
  if (step.kind == Kind::kCopy) {
    json["from"] = step.from;
  } else {
    json["peer"] = step.peer;
  }
  return json;
}

Places read_places(const Node& node) {
  Places places{.rank = node.at("rank").number(),
                .rank_step = node.at("rank_step").number(-kLargestNumber),
                .slot = node.at("slot").number(),
                .slot_step = node.at("slot_step").number(-kLargestNumber),
                .count = node.at("count").number()};
  if (!node.has("except") && !node.has("except_slot")) return places;
  places.except = node.at("except").number();
  places.except_slot = node.at("except_slot").number();
  return places;
}

Step read_step(const Node& node) {
  Step step{.kind = node.at("kind").one_of<Kind>(), .round = node.at("round").number()};
  const bool has_data = step.kind != Kind::kPost && step.kind != Kind::kWait;
  if (!step.is_local() || step.kind == Kind::kWait) step.peer = node.at("peer").number();
  if (step.kind == Kind::kWait) step.flag = node.at("flag").number();
  if (has_data) step.chunk = node.at("chunk").number();
  if (step.kind == Kind::kCombine) {
    step.width = node.at("width").number();
    step.sources = read_places(node.at("sources"));
    step.destinations = read_places(node.at("destinations"));
  } else if (has_data) {
    step.slots = {node.at("slot").number(), node.at("slots").number()};
  }
  if (step.kind == Kind::kCopy) step.from = node.at("from").number();
  if (node.has("text") && node.at("text").text() != to_string(step)) {
    node.at("text").refuse(fmt::format("'{}' instead of '{}', as the other fields say",
                                       shown(node.at("text").text()), to_string(step)));
  }
  return step;
}

Plan read_plan_header(const Node& node) {
  Plan plan;
  plan.collective = node.at("collective").one_of<Collective>();
  plan.algorithm = node.at("algorithm").text();
  if (!is_plain_word(plan.algorithm)) {
    node.at("algorithm").refuse(fmt::format("'{}' is no algorithm's name", shown(plan.algorithm)));
  }
  plan.world = node.at("world").number(1, kMostRanks);
  plan.root = node.at("root").number(0, plan.world - 1);
  plan.chunks = node.at("chunks").number(1);
  plan.slots = node.at("slots").number(1);
  plan.division = node.at("division").one_of<Division>();
  plan.order = node.at("order").one_of<Order>();
  plan.sends = node.at("sends").one_of<Sends>();
  if (node.has("ranks_per_node")) plan.ranks_per_node = node.at("ranks_per_node").number();
  return plan;
}

}  // namespace

std::string to_json(const Plan& plan) {
  check_printable(plan);
  Json ranks = Json::array();
  for (int rank = 0; rank < plan.world; ++rank) {
    Json steps = Json::array();
    for (Cursor cursor(plan, rank); !cursor.done(); cursor.advance()) {
      steps.push_back(step_json(cursor.step()));
    }
    ranks.push_back(std::move(steps));
  }
  const Json document = {{"collective", name(plan.collective)},
                         {"algorithm", plan.algorithm},
                         {"world", plan.world},
                         {"root", plan.root},
                         {"chunks", plan.chunks},
                         {"slots", plan.slots},
                         {"division", name(plan.division)},
                         {"order", name(plan.order)},
                         {"sends", name(plan.sends)},
                         {"ranks_per_node", plan.ranks_per_node},
                         {"ranks", std::move(ranks)}};
  return document.dump();
}

Plan plan_from_json(std::string_view text) {
  const Json document = parse_json("plan json", text);
  const Node root("plan json", document, "");
  Plan plan = read_plan_header(root);
  const Node ranks = root.at("ranks");
  if (ranks.size() != static_cast<size_t>(plan.world)) {
    ranks.refuse(fmt::format("{} ranks instead of {}", ranks.size(), plan.world));
  }
  std::vector<std::vector<Step>> steps(ranks.size());
  int64_t count = 0;
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    const Node list = ranks.at(rank);
    count += static_cast<int64_t>(list.size());
    if (count > kMostPrintedSteps) list.refuse(fmt::format("more than {} steps", kMostPrintedSteps));
    for (size_t index = 0; index < list.size(); ++index) steps[rank].push_back(read_step(list.at(index)));
  }
  if (const auto problem = too_large(plan, steps); !problem.empty()) ranks.refuse(problem);
  return stored(std::move(plan), std::move(steps));
}

}  // namespace lockstep::plan
