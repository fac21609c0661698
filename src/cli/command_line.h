#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

/// Finds the verb, parses its flags, runs it; the one place that turns exceptions into exit codes.
int run_command_line(const std::vector<std::string>& words);

/// The long and short flags that a verb takes, `--help` included; for messages and completion.
std::vector<std::string> flags_of(const Verb& verb);

}  // namespace lockstep::cli
