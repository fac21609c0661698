#include "lab/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

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

/// Every line two blanks further in. Sentences are broken to the width; rows of a table, which have blanks
/// side by side, stay whole.
std::string indented(const std::string& text, int columns) {
  std::istringstream stream(text);
  std::string result, line;
  while (std::getline(stream, line)) {
    const bool is_sentence = line.find("  ") == std::string::npos;
    result += (result.empty() ? "  " : "\n  ") + (is_sentence ? wrapped(line, columns - 2, 4) : line);
  }
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
  const Lesson* after = desk.course.after(n);
  if (after == nullptr) {
    const auto open = std::ranges::find_if(
        desk.course.lessons, [&](const Lesson& other) { return !desk.state.is_done(other.number); });
    if (open != desk.course.lessons.end()) after = &*open;
  }
  return after == nullptr
             ? fmt::format(
                   "next: lockstep lab why {0}, lockstep lab quiz {0}; this was the last lesson: well "
                   "done",
                   n)
             : fmt::format(
                   "next: lockstep lab why {0}, lockstep lab quiz {0}, then lockstep lab start {1} ({2})", n,
                   after->number, after->title);
}

/// The words of a text; `P - 1` is one, unless that makes it longer than `most`.
std::vector<std::string> unbreakable(const std::string& text, size_t most) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  bool is_after_sign = false;
  for (std::string word; stream >> word;) {
    const bool is_sign = word.size() == 1 && std::string("+-*/^").find(word) != std::string::npos;
    const bool is_joined =
        !words.empty() && (is_sign || is_after_sign) && words.back().size() + 1 + word.size() <= most;
    if (is_joined) {
      words.back() += " " + word;
    } else {
      words.push_back(word);
    }
    is_after_sign = is_sign;
  }
  return words;
}

}  // namespace

std::string wrapped(const std::string& text, int columns, int indent) {
  std::string result, line;
  for (const auto& word : unbreakable(text, static_cast<size_t>(columns) / 3)) {
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
    if (verdict.output.find("seam.inc") != std::string::npos)
      text += "\n  " +
              wrapped(
                  "seam.inc is where the check calls your functions: keep the names, arguments and results "
                  "that the starter gave them.",
                  style.columns - 2, 2) +
              "\n";
  } else {
    if (!verdict.passed()) {
      text += style.bad("  wrong ") + style.strong(verdict.name) + "\n\n";
      text += "  " + wrapped(verdict.what, style.columns - 2, 2) + "\n\n";
      text += "  " + wrapped(verdict.meaning, style.columns - 2, 2) + "\n";
      if (!verdict.replay.empty()) text += "\n  again: " + verdict.replay + "\n";
    }
    if (!verdict.notes.empty()) text += "\n";
    for (const auto& note : verdict.notes) text += style.dim(indented(note, style.columns)) + "\n";
    if (!verdict.passed() && !verdict.warnings.empty())
      text += "\n  the compiler warned:\n" + shortened(verdict.warnings, 12);
    if (!verdict.output.empty()) text += "\n  your code printed:\n" + shortened(verdict.output, 20);
  }
  text += "\n";
  if (verdict.passed())
    text += style.good(fmt::format("  passed ({:.1f} s)", verdict.build_s + verdict.check_s)) +
            style.dim(fmt::format("  with inputs drawn from --seed {}", verdict.seed)) + "\n";
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
