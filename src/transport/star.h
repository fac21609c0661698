#pragma once

#include <memory>
#include <vector>

#include "transport/control.h"
#include "transport/star_server.h"

namespace lockstep::transport {

/// The control plane of rank 0, after a meeting: `members` are the ranks from 1 on, in order.
std::unique_ptr<Control> serve_star(std::vector<Member> members);

/// The control plane of another rank, whose connection to rank 0 is `rank_0`.
std::unique_ptr<Control> join_star(int rank, int world, Member rank_0);

/// The control plane of a world of one: nobody to tell.
std::unique_ptr<Control> make_lone_control();

/// A process's pidfd, which is readable once the process has ended; empty if the kernel gives none.
launch::UniqueFd open_process(pid_t pid);

}  // namespace lockstep::transport
