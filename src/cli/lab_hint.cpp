#include <fmt/format.h>

#include <algorithm>
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
    const auto hints = lab::hints_of(lesson);
    auto& shown = desk.state.hints[lesson.number];
    shown = std::min(shown + 1, static_cast<int>(hints.size()));
    for (int k = 1; k <= shown; ++k)
      fmt::print("hint {} of {}\n{}\n", k, hints.size(),
                 lab::page_text(hints[static_cast<size_t>(k) - 1], lab_style(*options), true));
    if (shown < static_cast<int>(hints.size())) fmt::print("one more: lockstep lab hint {}\n", lesson.number);
    desk.save();
    return 0;
  };
}

}  // namespace lockstep::cli
