#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/desk.h"
#include "lab/page.h"

namespace lockstep::cli {

namespace {

struct ReadOptions : LabOptions {
  bool answers = false;
};

}  // namespace

Action define_lab_read(Flags flags) {
  const auto options = std::make_shared<ReadOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  flags.toggle("--answers", options->answers, "Unfold the answers to the lesson's questions");
  return [options](const Invocation&) {
    const auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    fmt::print("{}", lab::page_text(lab::read_text(lesson.folder / "lesson.md"), lab_style(*options),
                                    options->answers));
    return 0;
  };
}

Action define_lab_why(Flags flags) {
  const auto options = std::make_shared<LabOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  return [options](const Invocation&) {
    const auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    if (!desk.state.is_done(lesson.number))
      fmt::print("(lesson {} is not passed yet: this says what you are about to find out)\n\n",
                 lesson.number);
    fmt::print("{}", lab::page_text(lab::read_text(lesson.folder / "why.md"), lab_style(*options), true));
    return 0;
  };
}

}  // namespace lockstep::cli
