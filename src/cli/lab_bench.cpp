#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/lab_options.h"
#include "cli/temporary_folder.h"
#include "lab/desk.h"
#include "lab/program.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct LabBenchOptions : LabOptions {
  int64_t rounds = 3;
  JsonOutput json;
};

using Clock = std::chrono::steady_clock;

constexpr double kLimitS = 1.2;
constexpr double kTorchLimitS = 6;

/// Save to verdict of each lesson, by its solution: all that `lab check` does, fresh inputs and the sanitized
/// run included.
int lab_bench(const LabBenchOptions& options) {
  const auto course = lab::read_course(lab::source_tree());
  const TemporaryFolder work;
  nlohmann::json rows = nlohmann::json::array();
  bool are_all_right = true;
  if (options.json.prints_text()) {
    fmt::print("save to verdict, {} rounds: seconds, median (lowest to highest)\n\n", options.rounds);
    fmt::print("lesson                     build  check  all                     to reach\n");
  }
  for (const auto& lesson : course.lessons) {
    if (!options.lesson.empty() && std::to_string(lesson.number) != options.lesson) continue;
    std::filesystem::copy_file(lesson.folder / "solution.cpp", work.path() / lesson.file);
    lab::build_host(course, lesson, say_on_stderr, InterruptGuard::interrupted);
    stop_if_interrupted();
    std::vector<double> all, build, check;
    for (int64_t round = 0; round < options.rounds; ++round) {
      const auto start = Clock::now();
      lab::build_host(course, lesson, say_on_stderr, InterruptGuard::interrupted);
      const auto verdict = lab::check_file(course, lesson, work.path(), {});
      stop_if_interrupted();
      if (!verdict.passed())
        throw Error(fmt::format("lesson {}: its solution was refused: {}: {}{}", lesson.number, verdict.name,
                                verdict.what, verdict.output));
      build.push_back(verdict.build_s);
      check.push_back(verdict.check_s);
      all.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    for (auto* times : {&all, &build, &check}) std::ranges::sort(*times);
    const auto middle = all.size() / 2;
    const double limit = lesson.needs_torch ? kTorchLimitS : kLimitS;
    are_all_right = are_all_right && all[middle] < limit;
    if (options.json.prints_text()) {
      fmt::print("{:<25} {:>6.2f} {:>6.2f}  {:<22}  {:.1f}{}\n", lesson.name, build[middle], check[middle],
                 fmt::format("{:.2f} ({:.2f} to {:.2f})", all[middle], all.front(), all.back()), limit,
                 all[middle] < limit ? "" : "  missed");
    }
    rows.push_back({{"lesson", lesson.name},
                    {"seconds", all[middle]},
                    {"build_s", build[middle]},
                    {"check_s", check[middle]},
                    {"limit_s", limit}});
  }
  if (options.json.prints_text())
    fmt::print("\n{}\n", are_all_right ? "all are reached" : "not all are reached");
  options.json.write(rows);
  return 0;
}

}  // namespace

Action define_lab_bench(Flags flags) {
  const auto options = std::make_shared<LabBenchOptions>();
  add_lesson(flags, *options, "One lesson alone (default: all)");
  flags.number("--rounds", options->rounds, 1, 100, "How often each is built and checked");
  options->json.add_to(flags);
  return [options](const Invocation&) { return until_interrupted([&] { return lab_bench(*options); }); };
}

}  // namespace lockstep::cli
