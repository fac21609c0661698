#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>

namespace lockstep::launch {

/// Runs `keep` in a process of its own, the keeper, and returns the exit code that it returns there.
///
/// Two processes guard each other. The front (the caller: what the user's shell knows) passes
/// launcher_signals() on and waits; the keeper, its child in a session of its own with these signals blocked,
/// owns all processes that it starts. Both are subreapers: when the front is killed the keeper must see it,
/// by `front`, and kill all; when the keeper is killed its processes fall to the front, which kills all. Call
/// it from a process without other children or threads, whose standard descriptors are open. Signals that are
/// ignored stay so. It returns in both processes; the caller then exits.
/// `who` is named if the keeper is killed.
int run_guarded(std::string_view who, const std::function<int(pid_t front)>& keep);

}  // namespace lockstep::launch
