#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

/// Finds the verb, parses its flags, runs it; the one place that turns exceptions into exit codes.
int run_command_line(const std::vector<std::string>& words);

/// The words that can follow `prefix` to make a verb that is shown: after "", the first words of all; after
/// "bench", its kinds.
std::vector<std::string> words_after(std::string_view prefix);

/// What a shell offers behind a verb.
struct Completions {
  std::vector<std::string> words;  ///< Kinds, known words and flags, `--help` included.
  std::map<std::string, std::vector<std::string>>
      values;       ///< By flag that needs one: those there are, if few.
  bool takes_file;  ///< Files and programs may follow, too.
};

Completions completions_of(const Verb& verb);

}  // namespace lockstep::cli
