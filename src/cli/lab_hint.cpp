#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/desk.h"
#include "lab/page.h"

namespace lockstep::cli {

Action define_lab_hint(Flags flags) {
  const auto options = std::make_shared<LabOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  return [options](const Invocation&) {
    auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    fmt::print("{}", lab::one_more_hint(desk, lesson, lab_style(*options)));
    return 0;
  };
}

}  // namespace lockstep::cli
