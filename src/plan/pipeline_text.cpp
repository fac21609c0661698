#include "lockstep/plan/pipeline_text.h"

#include <fmt/format.h>

#include "plan/page_width.h"

namespace lockstep::plan {

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.stage, name(action.kind), action.microbatch);
}

std::string to_string(const PipelinePlan& plan) {
  std::string text = fmt::format("pipeline {} ranks {} microbatches {} chunks {}\n", plan.schedule,
                                 plan.shape.ranks, plan.shape.microbatches, plan.shape.chunks);
  for (size_t rank = 0; rank < plan.actions.size(); ++rank) {
    text += fmt::format("rank {}\n", rank);
    std::string line = " ";
    for (const auto& action : plan.actions[rank]) {
      const std::string word = to_string(action);
      if (line.size() + 1 + word.size() > kPageWidth) {
        text += line + "\n";
        line = " ";
      }
      line += " " + word;
    }
    if (line.size() > 1) text += line + "\n";
  }
  return text;
}

std::string to_csv(const PipelinePlan& plan) {
  std::string text = fmt::format("pipeline,{},ranks,{},microbatches,{},chunks,{}\n", plan.schedule,
                                 plan.shape.ranks, plan.shape.microbatches, plan.shape.chunks);
  for (const auto& actions : plan.actions) {
    std::string row;
    for (const auto& action : actions) row += (row.empty() ? "" : ",") + to_string(action);
    text += row + "\n";
  }
  return text;
}

}  // namespace lockstep::plan
