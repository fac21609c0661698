#include "lab/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace lockstep::lab {

namespace {

/// The compiler's or the program's words, cut to what a screen holds.
std::string shortened(const std::string& text, size_t most_lines) {
  std::istringstream stream(text);
  std::string shown, line;
  for (size_t count = 0; std::getline(stream, line); ++count) {
    if (count == most_lines) return shown + "  ... (more was left out)\n";
    shown += "  " + line + '\n';
  }
  return shown;
}

/// Every line two blanks further in.
std::string indented(const std::string& text) {
  std::string result = "  ";
  for (const char letter : text) result += letter == '\n' ? std::string("\n  ") : std::string(1, letter);
  return result;
}

std::string next_step(const Desk& desk, const Lesson& lesson, const Verdict& verdict) {
  const int n = lesson.number;
  if (!verdict.passed()) {
    const auto shown = desk.state.hints.find(n);
    const int next = shown == desk.state.hints.end() ? 1 : shown->second + 1;
    return next <= 3 ? fmt::format("next: change {}; stuck? lockstep lab hint {} (hint {} of 3)",
                                   desk.file(lesson).string(), n, next)
                     : fmt::format("next: change {}; all hints are out: lockstep lab solution {}",
                                   desk.file(lesson).string(), n);
  }
  const Lesson* const after = desk.course.after(n);
  return after == nullptr
             ? fmt::format("next: lockstep lab why {}; this was the last lesson: well done", n)
             : fmt::format(
                   "next: lockstep lab why {0}, lockstep lab quiz {0}, then lockstep lab start {1} ({2})", n,
                   after->number, after->title);
}

}  // namespace

std::string wrapped(const std::string& text, int columns, int indent) {
  std::istringstream words(text);
  std::string result, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > static_cast<size_t>(columns)) {
      result += line + '\n';
      line = std::string(static_cast<size_t>(indent), ' ') + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
  }
  return result + line;
}

std::string verdict_text(const Desk& desk, const Lesson& lesson, const Verdict& verdict, const Style& style) {
  std::string text = style.strong(fmt::format("Lesson {}: {}", lesson.number, lesson.title)) + "\n\n";
  for (const auto& sentence : verdict.proved)
    text += style.good("  ok    ") + wrapped(sentence, style.columns - 8, 8) + "\n";
  if (verdict.kind == Verdict::Kind::kNotBuilt) {
    text += style.bad("  does not compile") + "\n" + shortened(verdict.output, 30);
  } else {
    if (!verdict.passed()) {
      text += style.bad("  wrong ") + style.strong(verdict.name) + "\n\n";
      text += "  " + wrapped(verdict.what, style.columns - 2, 2) + "\n\n";
      text += "  " + wrapped(verdict.meaning, style.columns - 2, 2) + "\n";
      if (!verdict.replay.empty()) text += "\n  again: " + verdict.replay + "\n";
    }
    if (!verdict.notes.empty()) text += "\n";
    for (const auto& note : verdict.notes) text += style.dim(indented(note)) + "\n";
    if (!verdict.output.empty()) text += "\n  your code printed:\n" + shortened(verdict.output, 20);
  }
  text += "\n";
  if (verdict.passed())
    text += style.good(fmt::format("  passed ({:.1f} s)", verdict.build_s + verdict.check_s)) + "\n";
  if (!verdict.trace.empty())
    text += fmt::format("  see:  lockstep lab view {} draws a run of your code\n", lesson.number);
  return text + "  " + wrapped(next_step(desk, lesson, verdict), style.columns - 2, 2) + "\n";
}

std::string list_text(const Desk& desk, const Style& style) {
  std::string text;
  const Lesson* const now = desk.current();
  for (const auto& module : desk.course.modules) {
    text += style.strong(fmt::format("{} ({})", module.title, module.name)) + "\n";
    for (const auto& lesson : desk.course.lessons) {
      if (lesson.module != module.name) continue;
      const char* mark = desk.state.passed.contains(lesson.number)    ? "passed "
                         : desk.state.skipped.contains(lesson.number) ? "skipped"
                         : now == &lesson                             ? "now    "
                                                                      : "       ";
      text +=
          fmt::format("  {:>2}  {} {:<44} my_work/{}\n", lesson.number,
                      desk.state.is_done(lesson.number) ? style.good(mark) : mark, lesson.title, lesson.file);
    }
  }
  return text;
}

std::string progress_text(const Desk& desk, const Style& style) {
  const auto all = desk.course.lessons.size();
  const auto done = static_cast<size_t>(std::ranges::count_if(
      desk.course.lessons, [&](const Lesson& lesson) { return desk.state.is_done(lesson.number); }));
  const size_t width = 32, filled = all == 0 ? 0 : done * width / all;
  std::string text = fmt::format("[{}{}] {} of {} lessons", style.good(std::string(filled, '#')),
                                 std::string(width - filled, '.'), done, all);
  const Lesson* const now = desk.current();
  if (done == all) return text + "; all done\n";
  return text + fmt::format("; now lesson {}: {}\n", now->number, now->title);
}

}  // namespace lockstep::lab
