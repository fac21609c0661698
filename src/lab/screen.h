#pragma once

#include <string>

#include "lab/desk.h"
#include "lab/program.h"

namespace lockstep::lab {

/// How text is written: with colours on a terminal, plain elsewhere.
struct Style {
  bool colour = false;
  int columns = 100;

  std::string good(const std::string& text) const { return paint("32", text); }
  std::string bad(const std::string& text) const { return paint("31", text); }
  std::string strong(const std::string& text) const { return paint("1", text); }
  std::string dim(const std::string& text) const { return paint("2", text); }

 private:
  std::string paint(const char* code, const std::string& text) const {
    return colour ? "\x1b[" + std::string(code) + "m" + text + "\x1b[0m" : text;
  }
};

/// Breaks lines between words; later lines of a paragraph start with `indent` blanks.
std::string wrapped(const std::string& text, int columns, int indent);

/// A check's whole result: what held, what did not and what it means, and what to do next.
std::string verdict_text(const Desk& desk, const Lesson& lesson, const Verdict& verdict, const Style& style);

/// All lessons by module, each with a mark: done, current, or neither.
std::string list_text(const Desk& desk, const Style& style);

/// How far: done of all, the bar, what comes next.
std::string progress_text(const Desk& desk, const Style& style);

}  // namespace lockstep::lab
