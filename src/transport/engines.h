#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::transport {

/// A way for bytes to move between ranks.
struct Engine {
  std::string_view name;
  std::string_view what;     ///< One line for tables.
  bool built;                ///< What it needs was there when Lockstep was built.
  std::string_view version;  ///< Of the library that it stands on; "" for our own engines.
  std::string_view package;  ///< The Debian package that brings the library; "" for our own engines.
};

/// All engines, built or not.
const std::vector<Engine>& engines();

/// Whether `name` is an engine that was built.
bool is_built(std::string_view name);

/// Throws UsageError, saying how to get it, unless `name` is an engine that was built. `origin` names the
/// flag or variable that asked for it.
void require_engine(std::string_view name, std::string_view origin);

}  // namespace lockstep::transport
