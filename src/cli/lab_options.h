#pragma once

#include <string>

#include "cli/verb.h"
#include "lab/screen.h"

namespace lockstep::cli {

/// What every verb of the course takes: `--plain` for text without colours and questions without an answer.
struct LabOptions {
  std::string lesson;
  bool plain = false;
};

/// Adds `--plain`.
void add_plain(Flags flags, LabOptions& options);
/// Adds the word N and `--plain`.
void add_lesson(Flags flags, LabOptions& options, const std::string& help);

/// How standard output is written to.
lab::Style lab_style(const LabOptions& options);

/// Whether a person can answer a question: both ends are a terminal, and `--plain` was not given.
bool can_ask(const LabOptions& options);

/// Asks and returns whether the answer begins with y.
bool ask(const std::string& question);

/// For what takes long.
void say_on_stderr(const std::string& text);

}  // namespace lockstep::cli
