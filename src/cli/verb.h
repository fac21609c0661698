#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

class Flags;

/// What the user typed, for the action that a verb runs.
struct Invocation {
  std::vector<std::string> words;    ///< Everything after `lockstep`, verb included.
  std::vector<std::string> program;  ///< The program and its arguments, for verbs that take one.
};

/// Runs a verb whose flags have been parsed; returns the exit code.
using Action = std::function<int(const Invocation&)>;

/// One verb of the command. A verb is one file, and one line in verbs.cpp.
struct Verb {
  std::string_view name;          ///< As typed: `run`, or `bench launcher`.
  std::string_view group;         ///< Heading in `lockstep --help`; "" hides the verb.
  std::string_view summary;       ///< One line.
  std::string_view example;       ///< Shown at the end of the verb's own help.
  Action (*define)(Flags flags);  ///< Adds the flags; what it returns runs once they are parsed.
  bool takes_program = false;     ///< The first word that is no flag starts a program with its own flags.
};

/// All verbs, in the order of the help.
const std::vector<Verb>& verbs();

/// The verb that `words` starts with, or null.
const Verb* find_verb(const std::vector<std::string>& words);

}  // namespace lockstep::cli
