#pragma once

#include <string>
#include <vector>

#include "support/child.h"

namespace lockstep::test {

/// `lockstep run FLAGS -- actor WORDS` as a child.
std::vector<std::string> launched(const std::vector<std::string>& flags,
                                  const std::vector<std::string>& words);

/// The first line of `text` that holds `part`, or "".
std::string line_with(const std::string& text, const std::string& part);

/// How many lines of `text` hold `part`.
int count_lines_with(const std::string& text, const std::string& part);

}  // namespace lockstep::test
