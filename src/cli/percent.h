#pragma once

#include <fmt/format.h>

#include <string>

namespace lockstep::cli {

/// 0.125 -> "12.5%".
inline std::string percent(double part) {
  return fmt::format("{:.1f}%", part * 100);
}

}  // namespace lockstep::cli
