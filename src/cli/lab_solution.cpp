#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/desk.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct SolutionOptions : LabOptions {
  bool yes = false;
};

}  // namespace

Action define_lab_solution(Flags flags) {
  const auto options = std::make_shared<SolutionOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  flags.toggle("--yes", options->yes, "Show it though the lesson is not passed");
  return [options](const Invocation&) {
    const auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    if (!desk.state.passed.contains(lesson.number) && !options->yes) {
      const auto warning = fmt::format(
          "lesson {} is not passed yet: what you find out yourself stays with you", lesson.number);
      if (!can_ask(*options))
        throw UsageError(fmt::format("{}; hint: lockstep lab hint {}, or --yes if you want to see it",
                                     warning, lesson.number));
      if (!ask(warning + ". Show the solution?")) return 0;
    }
    fmt::print("{}", lab::read_text(lesson.folder / "solution.cpp"));
    return 0;
  };
}

}  // namespace lockstep::cli
