#include "lockstep/plan/pipeline_simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/error.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_walk.h"

namespace lockstep::plan {

namespace {

void check_cost(std::string_view what, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw UsageError(fmt::format("simulate: {} {}; hint: give a number, 0 or above", what, value));
}

void check_costs(const PipelineCosts& costs, int ranks) {
  if (costs.ranks.size() != 1 && std::ssize(costs.ranks) != ranks) {
    throw UsageError(
        fmt::format("simulate: costs of {} ranks for a plan of {}; hint: give one for all, or one for each",
                    costs.ranks.size(), ranks));
  }
  for (const auto& of_rank : costs.ranks) {
    check_cost("forward", of_rank.forward);
    check_cost("input-grad", of_rank.input_grad);
    check_cost("weight-grad", of_rank.weight_grad);
    check_cost("activation", of_rank.activation);
    check_cost("weight input", of_rank.weight_input);
  }
  check_cost("message", costs.message);
}

/// The visitor with the clocks. They count time in 1/V, in which a chunk costs what its rank's micro-batch
/// costs: thirds stay whole numbers, and sums are as exact as the costs.
class Clocks {
 public:
  struct Message {
    double arrival;
  };

  Clocks(const PipelinePlan& plan, const PipelineCosts& costs, PipelineSimulation& simulation)
      : plan_(plan), costs_(costs), simulation_(simulation), now_(plan.actions.size(), 0) {
    for (const auto& actions : plan.actions) simulation.actions.emplace_back(actions.size());
    simulation.utilisation.resize(plan.actions.size(), 0);
  }

  const RankCosts& costs_of(int rank) const {
    return costs_.ranks[costs_.ranks.size() == 1 ? 0 : static_cast<size_t>(rank)];
  }

  void compute(int rank, size_t index, const Action& action) {
    const double time = time_of(costs_of(rank), action.kind);
    simulation_.utilisation[static_cast<size_t>(rank)] += time;
    pass(rank, index, now(rank) + time);
  }

  Message send(int rank, size_t index, const Action&) {
    pass(rank, index, now(rank));
    return {now(rank) + costs_.message * plan_.shape.chunks};
  }

  void receive(int rank, size_t index, const Action&, const Message& message) {
    pass(rank, index, std::max(now(rank), message.arrival));
  }

 private:
  static double time_of(const RankCosts& costs, ActionKind kind) {
    switch (kind) {
      case ActionKind::kForward:
        return costs.forward;
      case ActionKind::kBackward:
        return costs.input_grad + costs.weight_grad;
      case ActionKind::kInputGrad:
        return costs.input_grad;
      case ActionKind::kWeightGrad:
        return costs.weight_grad;
      default:
        return 0;
    }
  }

  double& now(int rank) { return now_[static_cast<size_t>(rank)]; }

  void pass(int rank, size_t index, double end) {
    simulation_.actions[static_cast<size_t>(rank)][index] = {now(rank), end};
    simulation_.makespan = std::max(simulation_.makespan, end);
    now(rank) = end;
  }

  const PipelinePlan& plan_;
  const PipelineCosts& costs_;
  PipelineSimulation& simulation_;
  std::vector<double> now_;
};

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

}  // namespace

PipelineSimulation simulate_pipeline(const PipelinePlan& plan, const PipelineCosts& costs) {
  if (const auto verdict = verify_pipeline(plan); !verdict.ok) {
    throw UsageError(fmt::format("simulate: {}", verdict.problem));
  }
  check_costs(costs, plan.shape.ranks);
  PipelineSimulation simulation;
  Clocks clocks(plan, costs, simulation);
  PipelineWalk(plan, PipelineSends::kAsync, clocks).run();

  const double chunks = plan.shape.chunks;
  double ideal = 0;
  for (int rank = 0; rank < plan.shape.ranks; ++rank) {
    const RankCosts& own = clocks.costs_of(rank);
    const double total = own.forward + own.input_grad + own.weight_grad;
    ideal = std::max(ideal, plan.shape.microbatches * chunks * total);
    simulation.peak_activations.push_back(
        peak_memory(plan.actions[static_cast<size_t>(rank)], own.activation, own.weight_input) / chunks);
  }
  simulation.bubble = (simulation.makespan - ideal) / chunks;
  simulation.bubble_of_total = ratio(simulation.makespan - ideal, simulation.makespan);
  simulation.bubble_of_ideal = ratio(simulation.makespan - ideal, ideal);
  for (auto& busy : simulation.utilisation) busy = ratio(busy, simulation.makespan);
  simulation.makespan /= chunks;
  for (auto& spans : simulation.actions) {
    for (auto& span : spans) span = {span.start / chunks, span.end / chunks};
  }
  return simulation;
}

}  // namespace lockstep::plan
