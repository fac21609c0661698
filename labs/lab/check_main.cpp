#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lab/checker.h"

namespace lab {

namespace {

nlohmann::json to_json(const Event& event) {
  static constexpr std::string_view kNames[] = {"send", "recv", "compute", "note"};
  return {
      {"rank", event.rank},      {"stream", event.stream}, {"kind", kNames[static_cast<size_t>(event.kind)]},
      {"peer", event.peer},      {"count", event.count},   {"place", event.place},
      {"start", event.start_us}, {"end", event.end_us},    {"text", event.text}};
}

nlohmann::json to_json(const CheckResult& result) {
  nlohmann::json json = {{"passed", !result.has_failed}, {"proved", result.proved}, {"notes", result.notes}};
  if (result.has_failed) {
    const auto& failure = result.failure;
    json["failure"] = {{"name", failure.name},
                       {"what", failure.what},
                       {"meaning", failure.meaning},
                       {"world", failure.world},
                       {"seed", failure.seed}};
  }
  auto& trace = json["trace"] = {
      {"world", result.shown_world}, {"time_us", result.shown.time_us}, {"events", nlohmann::json::array()}};
  trace["unit"] = result.shown.is_in_cycles ? "cycle" : "us";
  for (const auto& event : result.shown.events) trace["events"].push_back(to_json(event));
  return json;
}

}  // namespace

int check_main(int argc, char** argv, const std::function<void(Checker&)>& check) {
  CheckOptions options;
  std::string result_path;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--seed") options.seed = std::stoull(argv[i + 1]);
    if (flag == "--world") options.world = std::stoi(argv[i + 1]);
    if (flag == "--result") result_path = argv[i + 1];
    if (flag == "--cpu") options.cpu_s = std::stoi(argv[i + 1]);
  }
  const CheckResult result = run_check(check, options);
  const std::string text = to_json(result).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (result_path.empty()) {
    fmt::print("{}\n", text);
  } else {
    std::ofstream(result_path) << text;
  }
  return result.has_failed ? 1 : 0;
}

}  // namespace lab
