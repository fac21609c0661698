#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/comment.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/pipeline_options.h"
#include "cli/plan_file.h"
#include "cli/progress.h"
#include "lockstep/error.h"
#include "lockstep/plan/pipeline_grid.h"
#include "lockstep/plan/pipeline_json.h"
#include "lockstep/plan/pipeline_simulate.h"
#include "lockstep/plan/pipeline_text.h"
#include "lockstep/plan/pipeline_verify.h"

namespace lockstep::cli {

namespace {

struct PlanPipelineOptions {
  std::string schedule;
  std::string file;
  PipelineOptions shape;
  bool text = false;
  bool csv = false;
  JsonOutput json;
};

int list_schedules(const JsonOutput& json) {
  auto document = nlohmann::json::array();
  if (json.prints_text()) fmt::print("a pipeline can be scheduled by:\n\n");
  for (const auto& schedule : plan::schedules()) {
    if (json.prints_text()) fmt::print("  {:<20} {}\n", schedule.name, schedule.summary);
    document.push_back({{"schedule", schedule.name}, {"summary", schedule.summary}});
  }
  if (json.prints_text()) fmt::print("\nhint: --schedule NAME draws and proves one\n");
  json.write(document);
  return 0;
}

/// How the plan fares under some sends; ranks that wait for ever have a line each.
std::string sends_text(const plan::PipelinePlan& plan, const plan::PipelineVerdict& verdict,
                       plan::PipelineSends sends) {
  constexpr size_t kShown = 4;
  if (verdict.completes(sends)) return "completes\n";
  const auto& blocked = verdict.blocked[static_cast<size_t>(sends)];
  std::string text;
  for (size_t i = 0; i < std::min(blocked.size(), kShown); ++i) {
    text += fmt::format("{:>{}}{}\n", i == 0 ? "deadlock: " : "", i == 0 ? 0 : 35,
                        plan::describe(plan, blocked[i]));
  }
  if (blocked.size() > kShown) text += fmt::format("{:35}and {} more\n", "", blocked.size() - kShown);
  return text;
}

std::string peaks_text(const std::vector<double>& peaks) {
  constexpr size_t kShown = 16;
  if (peaks.size() <= kShown) return fmt::format("{:.4g} by rank", fmt::join(peaks, " "));
  return fmt::format("{:.4g} on one rank at most", *std::max_element(peaks.begin(), peaks.end()));
}

std::string report(const plan::PipelinePlan& plan, const plan::PipelineVerdict& verdict) {
  if (!verdict.ok) return fmt::format("refused  {}\n", verdict.problem);
  std::string text =
      "proved   every stage runs every micro-batch forward and back once, when what it needs is there\n"
      "         both ends of every pair of ranks agree on the order of their messages\n\n";
  for (const auto sends : plan::kAllPipelineSends) {
    text += fmt::format("{:<8} {:<15} {}", sends == plan::PipelineSends::kBlocking ? "sends" : "",
                        plan::name(sends), sends_text(plan, verdict, sends));
  }
  const plan::PipelineSimulation simulation = plan::simulate_pipeline(plan);
  const auto percent = [](double part) { return fmt::format("{:.1f}%", part * 100); };
  text += fmt::format("\ncosts    {:<15} {:.6g}, if F, I and W take 1 each and messages nothing\n",
                      "makespan", simulation.makespan);
  text +=
      fmt::format("         {:<15} {:.6g}: {} of the total, {} of the ideal\n", "bubble", simulation.bubble,
                  percent(simulation.bubble_of_total), percent(simulation.bubble_of_ideal));
  text += fmt::format("         {:<15} {}, in micro-batches of a rank's part of the model\n", "activations",
                      peaks_text(verdict.peak_activations));
  return text;
}

std::string picture(const plan::PipelinePlan& plan) {
  try {
    return plan::pipeline_grid(plan) + "\n";
  } catch (const UsageError& too_large) {
    return fmt::format("({})\n\n", too_large.what());
  }
}

nlohmann::json document_of(const plan::PipelinePlan& plan, const plan::PipelineVerdict& verdict) {
  auto document = nlohmann::json::parse(plan::to_json(plan));
  document["verdict"] = {{"ok", verdict.ok},
                         {"problem", verdict.problem},
                         {"peak_activations", verdict.peak_activations},
                         {"sends", nlohmann::json::array()}};
  if (!verdict.ok) return document;
  for (const auto sends : plan::kAllPipelineSends) {
    auto blocked = nlohmann::json::array();
    for (const auto& [rank, action, peer] : verdict.blocked[static_cast<size_t>(sends)]) {
      blocked.push_back({{"rank", rank}, {"action", action}, {"peer", peer}});
    }
    document["verdict"]["sends"].push_back({{"sends", plan::name(sends)},
                                            {"completes", verdict.completes(sends)},
                                            {"blocked", std::move(blocked)}});
  }
  const auto simulation = plan::simulate_pipeline(plan);
  for (size_t rank = 0; rank < simulation.actions.size(); ++rank) {
    for (size_t i = 0; i < simulation.actions[rank].size(); ++i) {
      document["actions"][rank][i]["start"] = simulation.actions[rank][i].start;
      document["actions"][rank][i]["end"] = simulation.actions[rank][i].end;
    }
  }
  return document;
}

void print(const plan::PipelinePlan& plan, const plan::PipelineVerdict& verdict,
           const PlanPipelineOptions& options) {
  if (options.csv) {
    fmt::print("{}", plan::to_csv(plan));
  } else if (options.text) {
    fmt::print("{}{}", plan::to_string(plan), as_comment(report(plan, verdict)));
  } else {
    const auto& shape = plan.shape;
    fmt::print("pipeline by {}, {} rank{}, {} micro-batch{}{}\n\n{}{}", plan.schedule, shape.ranks,
               shape.ranks == 1 ? "" : "s", shape.microbatches, shape.microbatches == 1 ? "" : "es",
               shape.chunks == 1 ? "" : fmt::format(", {} chunks on each rank", shape.chunks),
               verdict.ok ? picture(plan) : "", report(plan, verdict));
  }
}

int show(const plan::PipelinePlan& plan, const PlanPipelineOptions& options) {
  const plan::PipelineVerdict verdict = [&] {
    const SlowWork slow(fmt::format("proving {} on {} ranks", plan.schedule, plan.shape.ranks));
    return plan::verify_pipeline(plan);
  }();
  if (options.json.prints_text()) print(plan, verdict, options);
  if (options.json.asked()) options.json.write(document_of(plan, verdict));
  return verdict.ok ? 0 : kExitFailure;
}

int run(const PlanPipelineOptions& options) {
  if (options.text && options.csv)
    throw UsageError("--text and --csv: one form at a time; hint: leave out one of them");
  if (!options.file.empty()) {
    if (!options.schedule.empty()) {
      throw UsageError(fmt::format("--schedule {}: --file brings its own plan; hint: leave out one of them",
                                   options.schedule));
    }
    return show(read_pipeline_file(options.file), options);
  }
  if (options.schedule.empty()) return list_schedules(options.json);
  const plan::Schedule& schedule = schedule_named(options.schedule);
  return show(plan::make_pipeline_plan(schedule.name, options.shape.shape_of(schedule, {schedule})), options);
}

}  // namespace

Action define_plan_pipeline(Flags flags) {
  const auto options = std::make_shared<PlanPipelineOptions>();
  flags.text("--schedule", options->schedule, "How; left out: list what there is", "NAME");
  options->shape.add_to(flags);
  flags.text("--file", options->file, "Prove the plan in this file, text, CSV or JSON, instead", "FILE");
  flags.toggle("--text", options->text, "Print the text form instead of the grid; --file reads it");
  flags.toggle("--csv", options->csv, "Print the CSV form, a line per rank, instead; --file reads it");
  options->json.add_to(flags);
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace lockstep::cli
