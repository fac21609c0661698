#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lockstep::cli {

/// What decides how fast this process multiplies matrices: a rank's answer to compare_settings().
nlohmann::json bench_hello();

}  // namespace lockstep::cli
