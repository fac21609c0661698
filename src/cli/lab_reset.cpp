#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/desk.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct ResetOptions : LabOptions {
  bool yes = false;
};

}  // namespace

Action define_lab_reset(Flags flags) {
  const auto options = std::make_shared<ResetOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  flags.toggle("--yes", options->yes, "Do not ask");
  return [options](const Invocation&) {
    auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    const auto file = desk.file(lesson).string();
    if (!options->yes && std::filesystem::exists(file)) {
      if (!can_ask(*options))
        throw UsageError(
            fmt::format("{} would be replaced by the starter; hint: --yes if you mean it", file));
      if (!ask(fmt::format("Replace {} by the starter? Yours is kept beside it.", file))) return 0;
    }
    const auto kept = lab::reset_lesson(desk, lesson);
    fmt::print("{} is the starter again{}\n", file, kept.empty() ? "" : "; yours is now " + kept.string());
    return 0;
  };
}

}  // namespace lockstep::cli
