#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comms/init.h"
#include "support/hosts.h"

namespace lockstep::test {

struct ProcessesOptions {
  std::string engine = "shm";
  std::chrono::milliseconds timeout{60'000};
  /// Spreads the ranks over these hosts, in blocks of equal size; all on this one if null.
  const Hosts* hosts = nullptr;
  /// Called in every rank's process before it joins: may change who it says it is, and its environment.
  std::function<void(Identity&)> before = {};
  /// Called in the parent once all ranks run, with their process ids.
  std::function<void(const std::vector<int>& pids)> meanwhile = {};
};

/// How a rank ended.
struct Ended {
  std::string text;    ///< What it threw or `act` returned, and the signal that ended it; "" for neither.
  int status = 0;      ///< As waitpid gives it.
  double seconds = 0;  ///< From the start of all to its end.
};

/// Runs `act` in a process for each rank of a world. Whatever happens, no process is left; a rank that does
/// not end within a generous time is killed, and its text says so.
std::vector<Ended> run_processes(int world, const std::function<std::string(Communicator&)>& act,
                                 const ProcessesOptions& options = {});

/// The same for processes that are not of a job: each is given its number.
std::vector<Ended> run_bare_processes(
    int count, const std::function<std::string(int)>& act,
    const std::function<void(const std::vector<int>& pids)>& meanwhile = {});

}  // namespace lockstep::test
