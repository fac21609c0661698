#include "lockstep/plan/pipeline_json.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/plan/pipeline_text.h"
#include "plan/check.h"
#include "plan/json_node.h"
#include "plan/pipeline_limits.h"

namespace lockstep::plan {

namespace {

Action read_action(const Node& node) {
  const Action action{.kind = node.at("kind").one_of<ActionKind>(),
                      .stage = node.at("stage").number(),
                      .microbatch = node.at("microbatch").number()};
  if (node.has("text") && node.at("text").text() != to_string(action)) {
    node.at("text").refuse(fmt::format("'{}' instead of '{}', as the other fields say",
                                       shown(node.at("text").text()), to_string(action)));
  }
  return action;
}

PipelinePlan read_pipeline_header(const Node& node) {
  PipelinePlan plan;
  plan.schedule = node.at("schedule").text();
  if (!is_plain_word(plan.schedule)) {
    node.at("schedule").refuse(fmt::format("'{}' is no schedule's name", shown(plan.schedule)));
  }
  plan.shape = {.ranks = node.at("ranks").number(1, kMostRanks),
                .microbatches = node.at("microbatches").number(1),
                .chunks = node.at("chunks").number(1)};
  if (const auto problem = too_large(plan.shape); !problem.empty()) node.refuse(problem);
  return plan;
}

}  // namespace

std::string to_json(const PipelinePlan& plan) {
  Json ranks = Json::array();
  for (const auto& actions : plan.actions) {
    Json list = Json::array();
    for (const auto& action : actions) {
      list.push_back({{"kind", name(action.kind)},
                      {"stage", action.stage},
                      {"microbatch", action.microbatch},
                      {"text", to_string(action)}});
    }
    ranks.push_back(std::move(list));
  }
  const Json document = {{"schedule", plan.schedule},
                         {"ranks", plan.shape.ranks},
                         {"microbatches", plan.shape.microbatches},
                         {"chunks", plan.shape.chunks},
                         {"actions", std::move(ranks)}};
  return document.dump();
}

PipelinePlan pipeline_from_json(std::string_view text) {
  const Json document = parse_json("pipeline json", text);
  const Node root("pipeline json", document, "");
  PipelinePlan plan = read_pipeline_header(root);
  const Node ranks = root.at("actions");
  if (ranks.size() != static_cast<size_t>(plan.shape.ranks)) {
    ranks.refuse(fmt::format("{} ranks instead of {}", ranks.size(), plan.shape.ranks));
  }
  int64_t count = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Node list = ranks.at(rank);
    count += static_cast<int64_t>(list.size());
    if (count > kMostPipelineActions) list.refuse(fmt::format("more than {} actions", kMostPipelineActions));
    auto& actions = plan.actions.emplace_back();
    for (size_t index = 0; index < list.size(); ++index) actions.push_back(read_action(list.at(index)));
  }
  return plan;
}

}  // namespace lockstep::plan
