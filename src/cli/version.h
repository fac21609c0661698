#pragma once

#include <string>

namespace lockstep::cli {

/// Versions of Lockstep, LibTorch and the engines, a line each. Read at build time: LibTorch is not loaded.
std::string version_text();

}  // namespace lockstep::cli
