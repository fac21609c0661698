#pragma once

#include <string>
#include <string_view>

#include "launch/environment.h"

namespace lockstep::launch {

/// The most ranks and nodes that an environment may speak of.
inline constexpr int kMaxWorldSize = 1 << 24;

/// Reads variables that one launcher sets together. Every refusal is a UsageError that names the variable and
/// its value and ends with this launcher's hint. Keeps a reference to the environment.
class Variables {
 public:
  /// `marker` is a variable that is set, and by which the launcher is known.
  Variables(const Environment& environment, std::string_view marker, std::string_view hint)
      : environment_(environment), marker_(marker), hint_(hint) {}

  bool has(std::string_view name) const;

  /// A whole number in [low, high]; a variable that is not set is refused.
  int number(std::string_view name, int low, int high) const;

  /// The same, or `absent` if the variable is not set.
  int number_or(std::string_view name, int low, int high, int absent) const;

  /// A text that fits one line, not empty; a variable that is not set is refused.
  const std::string& text(std::string_view name) const;

  /// "NAME=value", as error messages show it; the variable is set.
  std::string shown(std::string_view name) const;

  /// Throws UsageError: "identity: problem; hint: ...".
  [[noreturn]] void refuse(std::string_view problem) const;

 private:
  const std::string& value(std::string_view name) const;

  const Environment& environment_;
  std::string_view marker_;
  std::string_view hint_;
};

}  // namespace lockstep::launch
