#include "cli/bench_pipeline_trace.h"

#include <fmt/format.h>

#include "lockstep/plan/pipeline_text.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

/// Adds one row of one rank.
class TraceRow {
 public:
  TraceRow(Json& events, size_t process, size_t row, const std::string& name)
      : events_(events), process_(process), row_(row) {
    events_.push_back(
        {{"ph", "M"}, {"pid", process}, {"tid", row}, {"name", "thread_name"}, {"args", {{"name", name}}}});
    events_.push_back({{"ph", "M"},
                       {"pid", process},
                       {"tid", row},
                       {"name", "thread_sort_index"},
                       {"args", {{"sort_index", row}}}});
  }

  void add(const plan::Action& action, const plan::ActionSpan& span, double scale) {
    // Sends go on by themselves, and a receive that does not wait is not seen either.
    if (!action.is_compute() && span.end <= span.start) return;
    events_.push_back({{"ph", "X"},
                       {"pid", process_},
                       {"tid", row_},
                       {"name", plan::to_string(action)},
                       {"cat", action.is_compute()   ? "compute"
                               : action.is_receive() ? "wait"
                                                     : "send"},
                       {"ts", span.start * scale * 1e3},
                       {"dur", (span.end - span.start) * scale * 1e3}});
  }

 private:
  Json& events_;
  const size_t process_, row_;
};

}  // namespace

Json pipeline_trace(const std::vector<TracedStep>& steps) {
  auto events = Json::array();
  for (size_t number = 0; number < steps.size(); ++number) {
    const TracedStep& step = steps[number];
    const size_t process = number + 1;  // Perfetto takes 0 for the idle process
    events.push_back({{"ph", "M"},
                      {"pid", process},
                      {"tid", 0},
                      {"name", "process_name"},
                      {"args", {{"name", step.plan.schedule}}}});
    const plan::PipelineSimulation plain = plan::simulate_pipeline(step.plan);
    const double stretched = step.predicted.makespan > 0 ? step.predicted.makespan / plain.makespan : 1;
    for (size_t rank = 0; rank < step.plan.actions.size(); ++rank) {
      TraceRow planned(events, process, 3 * rank + 1, fmt::format("rank {} plan", rank));
      TraceRow predicted(events, process, 3 * rank + 2, fmt::format("rank {} predicted", rank));
      TraceRow run(events, process, 3 * rank + 3, fmt::format("rank {} run", rank));
      for (size_t at = 0; at < step.plan.actions[rank].size(); ++at) {
        const plan::Action& action = step.plan.actions[rank][at];
        planned.add(action, plain.actions[rank][at], stretched);
        predicted.add(action, step.predicted.actions[rank][at], 1);
        run.add(action, step.run[rank][at], 1);
      }
    }
  }
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

}  // namespace lockstep::cli
