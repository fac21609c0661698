#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/lab_options.h"
#include "lab/desk.h"

namespace lockstep::cli {

namespace {

struct ListOptions : LabOptions {
  JsonOutput json;
};

nlohmann::json progress_json(const lab::Desk& desk) {
  int64_t done = 0;
  for (const auto& lesson : desk.course.lessons) done += desk.state.is_done(lesson.number) ? 1 : 0;
  nlohmann::json document = {{"done", done}, {"lessons", desk.course.lessons.size()}, {"current", nullptr}};
  if (const auto* now = desk.current()) document["current"] = now->number;
  return document;
}

nlohmann::json list_json(const lab::Desk& desk) {
  auto lessons = nlohmann::json::array();
  for (const auto& lesson : desk.course.lessons) {
    lessons.push_back({{"number", lesson.number},
                       {"title", lesson.title},
                       {"module", lesson.module},
                       {"file", desk.file(lesson).string()},
                       {"passed", desk.state.passed.contains(lesson.number)},
                       {"skipped", desk.state.skipped.contains(lesson.number)}});
  }
  return {{"lessons", std::move(lessons)}, {"progress", progress_json(desk)}};
}

}  // namespace

Action define_lab_list(Flags flags) {
  const auto options = std::make_shared<ListOptions>();
  add_plain(flags, *options);
  options->json.add_to(flags);
  return [options](const Invocation&) {
    const auto desk = lab::open_desk();
    const auto style = lab_style(*options);
    if (options->json.prints_text())
      fmt::print("{}\n{}", lab::list_text(desk, style), lab::progress_text(desk, style));
    options->json.write(list_json(desk));
    return 0;
  };
}

Action define_lab_progress(Flags flags) {
  const auto options = std::make_shared<ListOptions>();
  add_plain(flags, *options);
  options->json.add_to(flags);
  return [options](const Invocation&) {
    const auto desk = lab::open_desk();
    if (options->json.prints_text()) fmt::print("{}", lab::progress_text(desk, lab_style(*options)));
    options->json.write(progress_json(desk));
    return 0;
  };
}

}  // namespace lockstep::cli
