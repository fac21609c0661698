#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/desk.h"

namespace lockstep::cli {

Action define_lab_start(Flags flags) {
  const auto options = std::make_shared<LabOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  return [options](const Invocation&) {
    auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    const bool is_new = lab::start_lesson(desk, lesson);
    fmt::print("Lesson {}: {}\n", lesson.number, lesson.title);
    fmt::print("  {}  {}\n", desk.file(lesson).string(),
               is_new ? "is ready for you" : "was there already and is as you left it");
    fmt::print("  read:   lockstep lab read {}\n", lesson.number);
    fmt::print("  check:  lockstep lab check {}, or a bare lockstep lab, which checks whenever you save\n",
               lesson.number);
    return 0;
  };
}

}  // namespace lockstep::cli
