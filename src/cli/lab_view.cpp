#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/view.h"

namespace lockstep::cli {

namespace {

struct ViewOptions : LabOptions {
  std::filesystem::path out;
};

}  // namespace

Action define_lab_view(Flags flags) {
  const auto options = std::make_shared<ViewOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  flags.path("--out", options->out, "Write the page here (default: my_work/views/NN_name.html)", "FILE");
  return [options](const Invocation&) {
    const auto desk = lab::open_desk();
    const auto& lesson = desk.lesson(options->lesson);
    const auto file = options->out.empty() ? lab::view_file(desk, lesson) : options->out;
    const auto data = lab::view_data(desk, lesson);
    lab::write_view(file, lab::view_page(desk.course, data));
    fmt::print("{}  shows the run that your last check kept; open it in a browser\n", file.string());
    if (data.at("is_outdated"))
      fmt::print("(your file has changed since that run: lockstep lab check {} keeps a new one)\n",
                 lesson.number);
    return 0;
  };
}

}  // namespace lockstep::cli
