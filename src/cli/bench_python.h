#pragma once

#include <filesystem>
#include <string>

namespace lockstep::cli {

/// Debian's own Python, which is the one that its package python3-torch serves, whichever comes first on
/// PATH.
constexpr const char* kDebianPython = "/usr/bin/python3";

/// Sees to it that kDebianPython has PyTorch, by tools/install-packages where `commands` (the folder of
/// `lockstep`) lies in a source tree; its version. Throws Error saying how to get it.
std::string require_python_torch(const std::filesystem::path& commands);

/// A script that a rank of PyTorch runs, found from the folder of `lockstep`. Throws Error if it is missing.
std::filesystem::path find_peer(const std::filesystem::path& commands, const std::string& script);

}  // namespace lockstep::cli
