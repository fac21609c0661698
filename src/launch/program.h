#pragma once

#include <string>
#include <vector>

#include "launch/environment.h"

namespace lockstep::launch {

/// Turns what the user typed into a command whose first word is the path of an executable file: names without
/// a slash are looked up on PATH, and a Python script (`train.py`) gets its interpreter, as torchrun does:
/// PYTHON_EXEC or python3, unbuffered. Throws UsageError if there is no such program or it cannot be
/// executed.
std::vector<std::string> find_program(const std::vector<std::string>& words, const Environment& environment);

}  // namespace lockstep::launch
