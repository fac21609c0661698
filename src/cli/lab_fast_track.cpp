#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_check.h"
#include "cli/lab_options.h"
#include "cli/nearest.h"
#include "lab/desk.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct FastTrackOptions : LabOptions {
  std::string module;
};

const lab::Module& module_named(const lab::Course& course, const std::string& word) {
  try {
    return course.module(word);
  } catch (const UsageError& error) {
    std::vector<std::string> known;
    for (const auto& module : course.modules) known.push_back(module.name);
    throw UsageError(with_nearest(error.what(), word, known));
  }
}

int fast_track(const FastTrackOptions& options) {
  auto desk = lab::open_desk();
  const auto& module = module_named(desk.course, options.module);
  const auto& lesson = desk.course.lesson(module.fast_track);
  if (lab::start_lesson(desk, lesson)) {
    fmt::print(
        "{}: solve lesson {} ({}) and the module's others count as done.\n  {}  is ready for you; then "
        "lockstep lab "
        "fast-track {} again\n",
        module.title, lesson.number, lesson.title, desk.file(lesson).string(), module.name);
    return 0;
  }
  const auto verdict = check_lesson(desk, lesson, {});
  fmt::print("{}", lab::verdict_text(desk, lesson, verdict, lab_style(options)));
  if (!verdict.passed()) return 1;
  for (const auto& other : desk.course.lessons) {
    if (other.module == module.name && !desk.state.passed.contains(other.number))
      desk.state.skipped.insert(other.number);
  }
  desk.state.current = 0;
  desk.save();
  fmt::print("\nmodule {} counts as done; lockstep lab list\n", module.name);
  return 0;
}

}  // namespace

Action define_lab_fast_track(Flags flags) {
  const auto options = std::make_shared<FastTrackOptions>();
  flags.word("module", options->module, "The module, as lockstep lab list names it in brackets", true);
  add_plain(flags, *options);
  return [options](const Invocation&) { return fast_track(*options); };
}

}  // namespace lockstep::cli
