#pragma once

#include <map>
#include <string>

namespace lockstep::launch {

/// Environment variables by name. Functions take one instead of calling getenv, so that tests can give any.
using Environment = std::map<std::string, std::string>;

/// This process's own.
Environment current_environment();

}  // namespace lockstep::launch
