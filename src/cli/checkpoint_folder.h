#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "train/checkpoint/resolve.h"

namespace lockstep::cli {

/// The checkpoint that the user means: see train::resolve_checkpoint(). Newer ones that were skipped are
/// named on standard error.
inline std::filesystem::path find_checkpoint(const std::filesystem::path& given) {
  std::vector<std::string> skipped;
  const auto folder = train::resolve_checkpoint(given, &skipped);
  for (const auto& why : skipped) std::fputs(fmt::format("note: skipped {}\n", why).c_str(), stderr);
  return folder;
}

}  // namespace lockstep::cli
