#pragma once

#include <cstddef>

namespace lockstep::plan {

/// Columns of a line that people read: grids and texts of plans break before it.
inline constexpr size_t kPageWidth = 110;

}  // namespace lockstep::plan
