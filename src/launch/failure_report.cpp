#include "launch/failure_report.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lockstep::launch {

namespace {

/// What torch's error handlers leave in error.json: {"message": "..."} or {"message": {"message": "..."}}.
std::string message_in(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return "";  // a named pipe would hold us
  std::ifstream stream(file);
  auto document = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  for (int depth = 0; depth < 2 && document.is_object() && document.contains("message"); ++depth) {
    document = nlohmann::json(document["message"]);
  }
  return document.is_string() ? document.get<std::string>() : "";
}

std::string indented(const std::string& text, const std::string& margin) {
  std::string shown;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    shown += fmt::format("{}{}\n", margin, text.substr(begin, end - begin));
    begin = end + 1;
  }
  return shown;
}

std::string after(int64_t from_ns, int64_t to_ns) {
  const double seconds = static_cast<double>(to_ns - from_ns) * 1e-9;
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

}  // namespace

int exit_code(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exit code {}", WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* name = sigabbrev_np(number);
  return fmt::format("killed by SIG{} (signal {}{})", name == nullptr ? "?" : name, number,
                     WCOREDUMP(wait_status) ? ", core dumped" : "");
}

const RankEnd* first_failure(const Attempt& attempt) {
  const auto failed = [](const RankEnd& end) { return exit_code(end.wait_status) != 0; };
  const auto found = std::find_if(attempt.ends.begin(), attempt.ends.end(), failed);
  return found == attempt.ends.end() ? nullptr : &*found;
}

std::string failure_report(const Attempt& attempt, int number, int of, int node_rank,
                           const std::string& host) {
  if (!attempt.not_started.empty()) {
    return fmt::format("lockstep run: attempt {} of {} could not start: {}\n", number, of,
                       attempt.not_started);
  }
  const RankEnd* cause = first_failure(attempt);
  if (cause == nullptr) return "";
  std::string text =
      fmt::format("lockstep run: rank {} failed first: {}\n", cause->rank, describe_end(cause->wait_status));
  if (of > 1) text += fmt::format("  attempt   {} of {}\n", number, of);
  text += fmt::format("  rank      {} (node {}, local rank {})\n", cause->rank, node_rank, cause->local_rank);
  text += fmt::format("  host      {}\n  pid       {}\n", host, cause->pid);
  text += fmt::format("  ended     {} after the start\n", after(attempt.started_ns, cause->noticed_ns));
  text += fmt::format("  logs      {}\n            {}\n", (cause->log_dir / "stdout.log").string(),
                      (cause->log_dir / "stderr.log").string());
  if (const std::string message = message_in(cause->log_dir / "error.json"); !message.empty()) {
    text += fmt::format("  it wrote  {}\n{}", (cause->log_dir / "error.json").string(),
                        indented(message, "    | "));
  }
  if (cause->last_lines.empty()) {
    text += "  it left nothing on standard error\n";
  } else {
    text += cause->last_lines.size() == 1
                ? "  the last line of its standard error:\n"
                : fmt::format("  last {} lines of its standard error:\n", cause->last_lines.size());
    for (const auto& line : cause->last_lines) text += fmt::format("    | {}\n", line);
  }
  bool first = true;
  for (const auto& end : attempt.ends) {
    if (&end == cause || (exit_code(end.wait_status) == 0 && !end.asked_to)) continue;
    if (std::exchange(first, false)) text += "ranks that ended after it:\n";
    text +=
        fmt::format("  rank {}: {}{}, {} later\n", end.rank, describe_end(end.wait_status),
                    end.asked_to ? ", asked by the launcher" : "", after(cause->noticed_ns, end.noticed_ns));
    // A rank that unwinds slowly is outrun by those that it brought down: its own words may tell the cause.
    if (!end.last_lines.empty()) text += fmt::format("    | {}\n", end.last_lines.back());
  }
  return text;
}

std::string attempt_line(const Attempt& attempt, int number) {
  if (!attempt.not_started.empty()) return fmt::format("  attempt {}: {}\n", number, attempt.not_started);
  const RankEnd* cause = first_failure(attempt);
  if (cause == nullptr) return fmt::format("  attempt {}: all ranks ended well\n", number);
  return fmt::format("  attempt {}: rank {} (pid {}) {}, {} after the start\n", number, cause->rank,
                     cause->pid, describe_end(cause->wait_status),
                     after(attempt.started_ns, cause->noticed_ns));
}

}  // namespace lockstep::launch
