#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/plan/pipeline_text.h"
#include "plan/check.h"
#include "plan/line.h"
#include "plan/pipeline_limits.h"

namespace lockstep::plan {

namespace {

PipelinePlan read_pipeline_header(Line& line) {
  PipelinePlan plan;
  line.expect("pipeline");
  const auto schedule = line.word("the schedule");
  if (!is_plain_word(schedule)) line.refuse(fmt::format("'{}' is no schedule's name", shown(schedule)));
  plan.schedule = schedule;
  line.expect("ranks");
  plan.shape.ranks = line.number("number of ranks", 1, kMostRanks);
  line.expect("microbatches");
  plan.shape.microbatches = line.number("number of micro-batches", 1);
  line.expect("chunks");
  plan.shape.chunks = line.number("number of chunks", 1);
  line.expect_end();
  if (const auto problem = too_large(plan.shape); !problem.empty()) line.refuse(problem);
  return plan;
}

/// `2F0`: stage, kind, micro-batch.
Action read_action(Line& line) {
  std::string_view word = line.word("an action");
  const std::string_view whole = word;
  Action action;
  action.stage = line.number_in(word, "stage");
  const std::string_view kind = word.substr(0, std::min(word.find_first_of("0123456789"), word.size()));
  const auto found = named<ActionKind>(kind);
  if (!found) {
    line.refuse(fmt::format("action '{}': '{}' is unknown; hint: one of {}", shown(whole), shown(kind),
                            names_of<ActionKind>()));
  }
  action.kind = *found;
  word.remove_prefix(kind.size());
  action.microbatch = line.number_in(word, "micro-batch");
  if (!word.empty()) line.refuse(fmt::format("'{}' after the action", shown(word)));
  return action;
}

/// Puts the lines together.
class PipelineReader {
 public:
  /// A line of the text form that is not blank.
  void read_text(Line& line) {
    if (!has_header_) return read_first(line);
    if (line.take("rank")) {
      const int rank = line.number("rank");
      line.expect_end();
      if (rank != std::ssize(plan_.actions)) {
        line.refuse(fmt::format("rank {} instead of {}", rank, plan_.actions.size()));
      }
      return add_rank(line);
    }
    if (plan_.actions.empty()) line.refuse("an action before 'rank 0'");
    read_actions(line);
  }

  /// A line of the CSV form. A rank without actions has a blank one.
  void read_csv(Line& line) {
    if (!has_header_) return read_first(line);
    const bool after_last = std::ssize(plan_.actions) == plan_.shape.ranks;
    if (after_last && line.done()) return;
    add_rank(line);
    read_actions(line);
  }

  PipelinePlan finish(const Line& last) {
    if (!has_header_) last.refuse("no plan; hint: the first line is 'pipeline SCHEDULE ranks N ...'");
    if (std::ssize(plan_.actions) < plan_.shape.ranks) {
      last.refuse(fmt::format("the plan ends after {} of {} ranks", plan_.actions.size(), plan_.shape.ranks));
    }
    return std::move(plan_);
  }

 private:
  void read_first(Line& line) {
    plan_ = read_pipeline_header(line);
    has_header_ = true;
  }

  void add_rank(const Line& line) {
    if (std::ssize(plan_.actions) == plan_.shape.ranks) {
      line.refuse(fmt::format("a rank after the last of {}", plan_.shape.ranks));
    }
    plan_.actions.emplace_back();
  }

  void read_actions(Line& line) {
    while (!line.done()) {
      if (++count_ > kMostPipelineActions) {
        line.refuse(fmt::format("more than {} actions", kMostPipelineActions));
      }
      plan_.actions.back().push_back(read_action(line));
    }
  }

  PipelinePlan plan_;
  int64_t count_ = 0;
  bool has_header_ = false;
};

/// Calls `read` with each line of `text`, and returns the plan.
template <typename Read>
PipelinePlan read_lines(std::string_view form, std::string_view text, size_t longest,
                        std::string_view between, const Read& read) {
  PipelineReader reader;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    Line line(form, text.substr(0, end), ++number, longest, between);
    read(reader, line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish(Line(form, "", std::max<int64_t>(number, 1)));
}

}  // namespace

PipelinePlan parse_pipeline(std::string_view text) {
  return read_lines("pipeline text", text, Line::kLongest, Line::kBlank,
                    [](PipelineReader& reader, Line& line) {
                      if (!line.done()) reader.read_text(line);
                    });
}

PipelinePlan pipeline_from_csv(std::string_view text) {
  return read_lines("pipeline csv", text, std::numeric_limits<size_t>::max(), ", \t\r",
                    [](PipelineReader& reader, Line& line) { reader.read_csv(line); });
}

}  // namespace lockstep::plan
