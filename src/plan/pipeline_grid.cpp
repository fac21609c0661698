#include "lockstep/plan/pipeline_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/plan/pipeline_simulate.h"
#include "lockstep/plan/pipeline_text.h"
#include "plan/page_width.h"

namespace lockstep::plan {

namespace {

constexpr int kTick = 5;  // cycles between two numbers of the ruler

std::string cell_text(const PipelinePlan& plan, const Action& action) {
  if (plan.shape.chunks > 1) return to_string(action);
  return fmt::format("{}{}", name(action.kind), action.microbatch);
}

/// What a rank does in each cycle: a cell of text each, which an action of several cycles fills with dashes.
struct RankRow {
  std::vector<std::string> cells;

  void put(size_t start, size_t end, const std::string& text) {
    cells[start] = text;
    for (size_t cycle = start + 1; cycle < end; ++cycle) cells[cycle] = "-";
  }
};

std::vector<RankRow> rows_of(const PipelinePlan& plan, const PipelineSimulation& simulation, size_t cycles) {
  std::vector<RankRow> rows(plan.actions.size(), {std::vector<std::string>(cycles, ".")});
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    for (size_t i = 0; i < plan.actions[rank].size(); ++i) {
      if (!plan.actions[rank][i].is_compute()) continue;
      const ActionSpan& span = simulation.actions[rank][i];
      rows[rank].put(static_cast<size_t>(span.start), static_cast<size_t>(span.end),
                     cell_text(plan, plan.actions[rank][i]));
    }
  }
  return rows;
}

/// Draws cycles `begin` to `end`, under a ruler.
std::string band(const std::vector<RankRow>& rows, size_t begin, size_t end, size_t label, size_t cell) {
  std::string text = fmt::format("{:<{}}", "cycle", label);
  for (size_t cycle = begin; cycle < end; cycle += kTick) {
    text += fmt::format("{:<{}}", cycle, kTick * (cell + 1));
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += "\n";
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    std::string line = fmt::format("{:<{}}", fmt::format("rank {}", rank), label - 2) + "| ";
    for (size_t cycle = begin; cycle < end; ++cycle) {
      const std::string& here = rows[rank].cells[cycle];
      const bool goes_on = cycle + 1 < end && rows[rank].cells[cycle + 1] == "-";
      line += here + std::string(cell - here.size(), here == "-" || goes_on ? '-' : ' ');
      line += goes_on ? '-' : ' ';
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string legend(const PipelinePlan& plan) {
  constexpr std::pair<ActionKind, std::string_view> kMeanings[] = {{ActionKind::kForward, "forward"},
                                                                   {ActionKind::kBackward, "backward"},
                                                                   {ActionKind::kInputGrad, "input-grad"},
                                                                   {ActionKind::kWeightGrad, "weight-grad"}};
  std::string text;
  for (const auto& [kind, meaning] : kMeanings) {
    const auto& actions = plan.actions.front();
    const auto same = [wanted = kind](const Action& action) { return action.kind == wanted; };
    if (std::none_of(actions.begin(), actions.end(), same)) continue;
    text += text.empty() ? cell_text(plan, {kind, 0, 0}) + fmt::format(" {} of ", meaning) +
                               (plan.shape.chunks > 1 ? "stage 0, " : "") + "micro-batch 0"
                         : fmt::format("; {} {}", name(kind), meaning);
  }
  return fmt::format("({}; . nothing to do)\n", text);
}

void check_size(const PipelinePlan& plan, double cycles) {
  const double cells = cycles * plan.shape.ranks;
  if (plan.shape.ranks <= kMostPipelineGridRanks && cells <= static_cast<double>(kMostPipelineGridCells)) {
    return;
  }
  throw UsageError(
      fmt::format("a grid of {} ranks and {} cycles is too large to read (at most {} ranks and {} cells); "
                  "hint: draw fewer micro-batches, or print the text form",
                  plan.shape.ranks, cycles, kMostPipelineGridRanks, kMostPipelineGridCells));
}

}  // namespace

std::string pipeline_grid(const PipelinePlan& plan) {
  // A chunk costs 1/V of its rank's micro-batch: in these costs, a cycle.
  const auto cost = static_cast<double>(plan.shape.chunks);
  const PipelineSimulation simulation = simulate_pipeline(
      plan, {.ranks = {{.forward = cost, .input_grad = cost, .weight_grad = cost}}, .message = 0});
  check_size(plan, simulation.makespan);
  const auto cycles = static_cast<size_t>(simulation.makespan);
  const auto rows = rows_of(plan, simulation, cycles);

  size_t cell = 1;
  for (const auto& row : rows) {
    for (const auto& text : row.cells) cell = std::max(cell, text.size());
  }
  const size_t label = fmt::format("rank {} | ", rows.size() - 1).size();
  size_t columns = (kPageWidth - label + 1) / (cell + 1);
  if (columns < cycles) columns = std::max<size_t>(columns / kTick, 1) * kTick;
  std::string text;
  for (size_t begin = 0; begin < cycles; begin += columns) {
    text += (begin > 0 ? "\n" : "") + band(rows, begin, std::min(begin + columns, cycles), label, cell);
  }
  return text + legend(plan);
}

}  // namespace lockstep::plan
