#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/lab_check.h"
#include "cli/lab_options.h"
#include "lab/desk.h"

#include <nlohmann/json.hpp>

#include "lab/program.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct CheckOptions : LabOptions {
  int64_t seed = 0;
  int64_t world = 0;
  bool mine = false;
  JsonOutput json;
};

nlohmann::json to_json(const lab::Lesson& lesson, const lab::Verdict& verdict) {
  static constexpr std::string_view kKinds[] = {"passed", "refused", "not built", "died"};
  return {{"lesson", lesson.number},    {"verdict", kKinds[static_cast<size_t>(verdict.kind)]},
          {"name", verdict.name},       {"what", verdict.what},
          {"meaning", verdict.meaning}, {"replay", verdict.replay},
          {"proved", verdict.proved},   {"notes", verdict.notes},
          {"output", verdict.output},   {"build_s", verdict.build_s},
          {"check_s", verdict.check_s}};
}

}  // namespace

lab::Verdict check_lesson(lab::Desk& desk, const lab::Lesson& lesson, const lab::CheckRequest& request) {
  if (!std::filesystem::exists(desk.file(lesson))) {
    throw UsageError(fmt::format("{}: not there yet; hint: lockstep lab start {}", desk.file(lesson).string(),
                                 lesson.number));
  }
  for (const int number : request.mine ? lesson.uses : std::vector<int>{}) {
    if (!std::filesystem::exists(desk.file(desk.course.lesson(number)))) {
      throw UsageError(
          fmt::format("--mine: lesson {} builds on {}, which is not there; hint: lockstep lab start {}",
                      lesson.number, desk.file(desk.course.lesson(number)).string(), number));
    }
  }
  lab::build_host(desk.course, lesson, say_on_stderr, InterruptGuard::interrupted);
  stop_if_interrupted();
  auto verdict = lab::check_file(desk.course, lesson, desk.work, request);
  stop_if_interrupted();  // its code may have been stopped, too
  if (!verdict.trace.empty()) lab::keep_trace(desk, lesson, verdict.trace);
  if (verdict.passed() && request.world == 0 && desk.state.passed.insert(lesson.number).second) {
    desk.state.skipped.erase(lesson.number);
    desk.save();
  }
  return verdict;
}

Action define_lab_check(Flags flags) {
  const auto options = std::make_shared<CheckOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  flags.number("--seed", options->seed, 0, 1'000'000'000,
               "What the check draws: worlds, sizes, values, who runs when (0: another every time)");
  flags.number("--world", options->world, 0, 64,
               "Try this number of ranks alone (0: all that the check has)");
  flags.toggle("--mine", options->mine,
               "Build on your own code of earlier lessons in place of the library's");
  options->json.add_to(flags);
  return [options](const Invocation&) {
    auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    if (options->mine && lesson.uses.empty())
      say_on_stderr(fmt::format("lesson {} builds on no other one: --mine changes nothing", lesson.number));
    const auto verdict = check_lesson(desk, lesson,
                                      {.seed = static_cast<uint64_t>(options->seed),
                                       .world = static_cast<int>(options->world),
                                       .mine = options->mine});
    if (options->json.prints_text())
      fmt::print("{}", lab::verdict_text(desk, lesson, verdict, lab_style(*options)));
    options->json.write(to_json(lesson, verdict));
    return verdict.passed() ? 0 : 1;
  };
}

}  // namespace lockstep::cli
