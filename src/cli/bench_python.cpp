#include "cli/bench_python.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/build_info.h"
#include "launch/capture.h"
#include "launch/lines.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

launch::Captured ask_version() {
  return launch::capture({kDebianPython, "-c", "import torch; print(torch.__version__)"},
                         launch::current_environment(), std::chrono::minutes(2));
}

}  // namespace

std::string require_python_torch(const fs::path& commands) {
  auto asked = ask_version();
  // <tree>/build/release/bin
  const fs::path installer =
      commands.parent_path().parent_path().parent_path() / "tools" / "install-packages";
  if (!asked.ok() && fs::exists(installer)) {
    fmt::print(stderr, "lockstep bench: PyTorch is missing; {} bench\n", installer.string());
    const auto installed = launch::capture({installer.string(), "bench"}, launch::current_environment(),
                                           std::chrono::minutes(30));
    fmt::print(stderr, "{}", installed.errors);
    asked = ask_version();
  }
  if (asked.ok()) return std::string(launch::last_line(asked.output));
  throw Error(fmt::format(
      "--peers pytorch: {} cannot import torch: {}; hint: apt-get install python3-torch, or leave "
      "the peer out",
      kDebianPython, launch::last_line(asked.errors)));
}

fs::path find_peer(const fs::path& commands, const std::string& script) {
  fs::path found = (commands / LOCKSTEP_DATA_FROM_BIN / script).lexically_normal();
  if (fs::exists(found)) return found;
  throw Error(
      fmt::format("--peers pytorch: {} is missing; hint: it is installed with this command", found.string()));
}

}  // namespace lockstep::cli
