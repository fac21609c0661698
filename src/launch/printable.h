#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

/// `text` as an error message may show it: control characters as \xNN, cut with "..." after `limit` bytes.
/// Values of the environment go through this, so that a hostile one cannot write to the terminal or fill the
/// log.
std::string printable(std::string_view text, std::size_t limit = 80);

}  // namespace lockstep::launch
