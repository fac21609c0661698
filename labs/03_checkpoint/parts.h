#pragma once

#include <optional>
#include <string>

#include "03_checkpoint/check.h"

namespace lab::checkpoint {

/// What the check saves under.
inline const std::string kName = "state";

/// A state that differs from those of other numbers.
Bytes state_number(const Seam& seam, const Checker& checker, uint64_t number);

/// Which of the two states this is: "the old state", "the new state", "nothing", or how long it is.
std::string told(const std::optional<Bytes>& found, const std::optional<Bytes>& before, const Bytes& now);

/// Cuts the power of a simulated disk wherever it can be cut.
void check_cuts(const Seam& seam, Checker& checker);

/// Kills processes that save on a real one.
void check_kills(const Seam& seam, Checker& checker);

}  // namespace lab::checkpoint
