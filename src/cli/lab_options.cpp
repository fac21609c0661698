#include "cli/lab_options.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "cli/flags.h"
#include "cli/terminal.h"

namespace lockstep::cli {

void add_plain(Flags flags, LabOptions& options) {
  flags.toggle("--plain", options.plain, "No colours, no screen of its own, no questions");
}

void add_lesson(Flags flags, LabOptions& options, const std::string& help) {
  flags.word("lesson", options.lesson, help, false);
  add_plain(flags, options);
}

lab::Style lab_style(const LabOptions& options) {
  lab::Style style{.colour = !options.plain && use_colour(STDOUT_FILENO)};
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.columns = std::clamp<int>(size.ws_col, 40, 110);
  return style;
}

bool can_ask(const LabOptions& options) {
  return !options.plain && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

bool ask(const std::string& question) {
  fmt::print("{} [y/N] ", question);
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return !answer.empty() && (answer[0] == 'y' || answer[0] == 'Y');
}

void say_on_stderr(const std::string& text) {
  fmt::print(stderr, "lockstep lab: {}\n", text);
}

}  // namespace lockstep::cli
