#pragma once

#include <string>

namespace lockstep::launch {

/// A value and where it came from: a flag, a variable, a rule.
struct Setting {
  std::string name;
  std::string value;
  std::string origin;
};

}  // namespace lockstep::launch
