#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/percent.h"
#include "cli/pipeline_options.h"
#include "cli/progress.h"
#include "lockstep/error.h"
#include "lockstep/plan/pipeline_simulate.h"

namespace lockstep::cli {

namespace {

struct SimulatePipelineOptions {
  std::string schedules = "all";
  PipelineOptions shape = {.stages = 8, .microbatches = 32};
  plan::RankCosts costs;
  double message = 0;
  JsonOutput json;

  bool several() const { return schedules == "all" || schedules.find(',') != std::string::npos; }
};

struct ScheduleRow {
  plan::PipelinePlan plan;
  plan::PipelineSimulation simulation;
};

/// Those that the shape allows; `left_out` gets the reasons of the others. Throws UsageError if one was asked
/// for by name.
std::vector<ScheduleRow> simulated(const SimulatePipelineOptions& options,
                                   std::vector<std::string>& left_out) {
  const auto schedules = parse_schedules(options.schedules);
  std::vector<ScheduleRow> rows;
  for (const auto& schedule : schedules) {
    const plan::PipelineShape shape = options.shape.shape_of(schedule, schedules);
    if (auto problem = plan::why_not(schedule, shape); !problem.empty()) {
      left_out.push_back(std::move(problem));
      if (options.schedules != "all" || left_out.size() == schedules.size()) {
        throw UsageError(left_out.front());
      }
      continue;
    }
    const SlowWork slow(fmt::format("simulating {} on {} ranks", schedule.name, options.shape.stages));
    auto plan = plan::make_pipeline_plan(schedule.name, shape);
    auto simulation = plan::simulate_pipeline(plan, {.ranks = {options.costs}, .message = options.message});
    rows.push_back({std::move(plan), std::move(simulation)});
  }
  return rows;
}

double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

void print_table(const std::vector<ScheduleRow>& rows) {
  fmt::print("{:<12} {:>7} {:>12} {:>12} {:>9} {:>9} {:>12} {:>12}\n", "schedule", "chunks", "makespan",
             "bubble", "of total", "of ideal", "utilisation", "activations");
  const auto fastest =
      std::min_element(rows.begin(), rows.end(), [](const ScheduleRow& a, const ScheduleRow& b) {
        return a.simulation.makespan < b.simulation.makespan;
      });
  for (const auto& row : rows) {
    const auto& simulation = row.simulation;
    fmt::print("{:<12} {:>7} {:>12.6g} {:>12.6g} {:>9} {:>9} {:>12} {:>12.6g}{}\n", row.plan.schedule,
               row.plan.shape.chunks, simulation.makespan, simulation.bubble,
               percent(simulation.bubble_of_total), percent(simulation.bubble_of_ideal),
               percent(largest(simulation.utilisation)), largest(simulation.peak_activations),
               rows.size() > 1 && &row == &*fastest ? "  <- fastest" : "");
  }
  fmt::print("(utilisation and activations of the rank that has most)\n");
}

/// One schedule's ranks.
void print_ranks(const plan::PipelineSimulation& simulation) {
  fmt::print("\n{:>6} {:>12} {:>12}\n", "rank", "utilisation", "activations");
  for (size_t rank = 0; rank < simulation.utilisation.size(); ++rank) {
    fmt::print("{:>6} {:>12} {:>12.6g}\n", rank, percent(simulation.utilisation[rank]),
               simulation.peak_activations[rank]);
  }
}

void print(const SimulatePipelineOptions& options, const std::vector<ScheduleRow>& rows,
           const std::vector<std::string>& left_out) {
  fmt::print("pipeline of {} rank{}, {} micro-batch{}: F {}, I {}, W {}, a message {}\n\n",
             options.shape.stages, options.shape.stages == 1 ? "" : "s", options.shape.microbatches,
             options.shape.microbatches == 1 ? "" : "es", options.costs.forward, options.costs.input_grad,
             options.costs.weight_grad, options.message);
  print_table(rows);
  if (!options.several()) print_ranks(rows.front().simulation);
  for (const auto& reason : left_out) fmt::print("left out: {}\n", reason);
}

nlohmann::json row_json(const ScheduleRow& row) {
  return {{"schedule", row.plan.schedule},
          {"ranks", row.plan.shape.ranks},
          {"microbatches", row.plan.shape.microbatches},
          {"chunks", row.plan.shape.chunks},
          {"makespan", row.simulation.makespan},
          {"bubble", row.simulation.bubble},
          {"bubble_of_total", row.simulation.bubble_of_total},
          {"bubble_of_ideal", row.simulation.bubble_of_ideal},
          {"utilisation", row.simulation.utilisation},
          {"peak_activations", row.simulation.peak_activations}};
}

int run(const SimulatePipelineOptions& options) {
  std::vector<std::string> left_out;
  const auto rows = simulated(options, left_out);
  if (options.json.prints_text()) print(options, rows, left_out);
  auto document = nlohmann::json::array();
  for (const auto& row : rows) document.push_back(row_json(row));
  options.json.write(options.several() ? document : document[0]);
  return 0;
}

}  // namespace

Action define_simulate_pipeline(Flags flags) {
  const auto options = std::make_shared<SimulatePipelineOptions>();
  flags.text("--schedule", options->schedules, "One, some, such as gpipe,1f1b, or all that the shape allows",
             "NAME");
  options->shape.add_to(flags);
  flags.number("--f", options->costs.forward, 0, 1e9, "Time of a forward, of one micro-batch on one rank");
  flags.number("--i", options->costs.input_grad, 0, 1e9, "Time of an input-grad");
  flags.number("--w", options->costs.weight_grad, 0, 1e9, "Time of a weight-grad; a backward takes I + W");
  flags.number("--comm", options->message, 0, 1e9, "Time of a message");
  flags.number("--mb", options->costs.activation, 0, 1e9, "Memory held from a forward to its I or B");
  flags.number("--mw", options->costs.weight_input, 0, 1e9, "Memory held from I to W");
  options->json.add_to(flags);
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace lockstep::cli
