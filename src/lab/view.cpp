#include "lab/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lab/view_plan.h"
#include "lockstep/error.h"

namespace lockstep::lab {

namespace {

/// By this a page is known from other files; page.html has it, too.
constexpr std::string_view kMark = "content=\"lockstep lab view\"";

/// Throws Error unless the page can draw it.
void check_event(const nlohmann::json& event, int world) {
  const auto rank = event.at("rank").get<int>();
  const auto kind = event.at("kind").get<std::string>();
  const auto start = event.at("start").get<double>(), end = event.at("end").get<double>();
  if (rank < 0 || rank >= world) throw Error(fmt::format("rank {} of {}", rank, world));
  if (kind != "send" && kind != "recv" && kind != "compute" && kind != "note")
    throw Error(fmt::format("kind {}: neither send, recv, compute nor note", kind));
  const auto peer = event.at("peer").get<int>();
  if ((kind == "send" || kind == "recv") && (peer < 0 || peer >= world))
    throw Error(fmt::format("peer {} of {}", peer, world));
  if (!std::isfinite(start) || !std::isfinite(end) || start < 0 || end < start)
    throw Error(fmt::format("from {} to {} us", start, end));
  if (event.at("count").get<int64_t>() < 0)
    throw Error(fmt::format("count {}", event.at("count").get<int64_t>()));
  event.at("stream").get<int>();
  event.at("place").get<int64_t>();
  event.at("text").get<std::string>();
}

nlohmann::json read_trace(const std::filesystem::path& file) {
  std::string place;
  try {
    auto trace = nlohmann::json::parse(read_text(file));
    const auto world = trace.at("world").get<int>();
    if (!std::isfinite(trace.at("time_us").get<double>()))
      throw Error(fmt::format("time_us {}", trace.at("time_us").dump()));
    const auto& events = trace.at("events");
    for (size_t i = 0; i < events.size(); ++i) {
      place = fmt::format(" event {}:", i);
      check_event(events.at(i), world);
    }
    return trace;
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}:{} {}; hint: lockstep lab check writes it again", file.string(), place,
                            error.what()));
  }
}

void insert(std::string& page, std::string_view word, const std::string& text) {
  const auto at = page.find(word);
  if (at == std::string::npos) throw Error(fmt::format("labs/view/page.html: {} is missing", word));
  page.replace(at, word.size(), text);
}

/// JSON between tags of HTML: `<` stands in strings alone, and written as an escape it can end no tag.
std::string inside_html(const nlohmann::json& data) {
  std::string text;
  for (const char letter : data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (letter == '<') {
      text += "\\u003c";
    } else {
      text += letter;
    }
  }
  return text;
}

}  // namespace

nlohmann::json view_data(const Desk& desk, const Lesson& lesson) {
  const auto file = trace_file(desk, lesson);
  if (!std::filesystem::exists(file)) {
    throw UsageError(fmt::format(
        "lesson {}: {} is not there: no run has been kept yet; hint: lockstep lab check {} "
        "first; it keeps one as soon as your ranks do something (a lesson without ranks keeps none)",
        lesson.number, file.string(), lesson.number));
  }
  auto trace = read_trace(file);
  const auto own = desk.file(lesson);
  const bool is_outdated = std::filesystem::exists(own) &&
                           std::filesystem::last_write_time(own) > std::filesystem::last_write_time(file);
  nlohmann::json plan;
  try {
    plan = plan_beside(lesson.plan, trace);
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}: plan: {}: {}", (lesson.folder / "lesson.json").string(), lesson.plan, error.what()));
  }
  const auto verdict = trace.value("verdict", nlohmann::json());
  return {{"lesson", {{"number", lesson.number}, {"title", lesson.title}}},
          {"trace", std::move(trace)},
          {"verdict", verdict},
          {"is_outdated", is_outdated},
          {"plan", std::move(plan)}};
}

std::string view_page(const Course& course, const nlohmann::json& data) {
  const auto folder = course.tree / "labs" / "view";
  auto page = read_text(folder / "page.html");
  insert(page, "@STYLE@", read_text(folder / "page.css"));
  insert(page, "@SCRIPT@", read_text(folder / "page.js"));
  insert(page, "@DATA@", inside_html(data));  // last: what a learner wrote may hold any word
  return page;
}

std::filesystem::path view_file(const Desk& desk, const Lesson& lesson) {
  return desk.work / "views" / (lesson.name + ".html");
}

void write_view(const std::filesystem::path& file, const std::string& page) {
  if (std::filesystem::exists(file) &&
      (!std::filesystem::is_regular_file(file) || read_text(file).find(kMark) == std::string::npos)) {
    throw UsageError(
        fmt::format("{}: is there and was not written by lockstep lab view; hint: name another file by --out",
                    file.string()));
  }
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file, std::ios::binary);
  stream << page;
  stream.close();
  if (!stream) throw Error(fmt::format("{}: cannot be written", file.string()));
}

}  // namespace lockstep::lab
