#include <fmt/format.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/desk.h"

namespace lockstep::cli {

Action define_lab_list(Flags flags) {
  const auto options = std::make_shared<LabOptions>();
  add_plain(flags, *options);
  return [options](const Invocation&) {
    const auto desk = lab::open_desk();
    const auto style = lab_style(*options);
    fmt::print("{}\n{}", lab::list_text(desk, style), lab::progress_text(desk, style));
    return 0;
  };
}

Action define_lab_progress(Flags flags) {
  const auto options = std::make_shared<LabOptions>();
  add_plain(flags, *options);
  return [options](const Invocation&) {
    fmt::print("{}", lab::progress_text(lab::open_desk(), lab_style(*options)));
    return 0;
  };
}

}  // namespace lockstep::cli
