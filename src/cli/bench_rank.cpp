#include "cli/bench_rank.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "launch/number.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

void leave_stamp(const fs::path& file) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream(file) << fmt::format("{:.6f}\n", std::chrono::duration<double, std::milli>(now).count());
}

/// The last rank dies once all others wait; they leave when they were asked to stop.
int bench_rank(const fs::path& folder) {
  const char* told = std::getenv("LOCKSTEP_BENCH_WORLD");
  const int world = launch::parse_number("LOCKSTEP_BENCH_WORLD", told == nullptr ? "" : told, 1, 1024);
  const int rank = identify().rank;
  if (rank != world - 1) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, nullptr);
    std::ofstream(folder / fmt::format("{}{}", kReadyFile, rank)) << "ready\n";
    const timespec limit{.tv_sec = 60, .tv_nsec = 0};
    if (sigtimedwait(&stop, nullptr, &limit) != SIGTERM) return 1;
    leave_stamp(folder / fmt::format("{}{}", kAskedFile, rank));
    return 0;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int other = 0; other < world - 1; ++other) {
    while (!fs::exists(folder / fmt::format("{}{}", kReadyFile, other))) {
      if (std::chrono::steady_clock::now() > deadline)
        throw Error(fmt::format("rank {} did not come", other));
      poll(nullptr, 0, 1);
    }
  }
  leave_stamp(folder / kDiedFile);
  raise(SIGKILL);
  return 1;
}

}  // namespace

Action define_bench_rank(Flags flags) {
  const auto folder = std::make_shared<std::string>();
  flags.word("folder", *folder, "Where the ranks leave their times", true);
  return [folder](const Invocation&) { return bench_rank(*folder); };
}

}  // namespace lockstep::cli
