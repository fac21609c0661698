#pragma once

namespace lockstep::cli {

/// Whether colours and progress may be written to this file descriptor: a terminal that can show them, and
/// `NO_COLOR` unset or empty.
bool use_colour(int fd);

}  // namespace lockstep::cli
