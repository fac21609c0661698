#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// The most hosts, and the most nodes, that the functions below expand to.
inline constexpr std::size_t kMaxHosts = 65536;

/// The longest host name: what a name of the domain name system may have.
inline constexpr std::size_t kMaxHostLength = 253;

/// Whether `text` may be a host's name or address: one word of bounded length without a slash.
bool may_be_host(std::string_view text);

/// Expands a SLURM hostlist: "tux[1-3,07],a[01-02]b[3-4]" is tux1 tux2 tux3 tux07 a01b3 a01b4 a02b3 a02b4.
///
/// Names are letters, digits, '-', '_' and '.'; brackets hold numbers and ranges, and the last bracket of a
/// name turns fastest. A range has the width of its first number: [08-10] is 08 09 10. Order and repetitions
/// are kept. Throws UsageError, naming `origin`, the position (from 1) and what was found there, if `text` is
/// not such a list, or expands to more than kMaxHosts names or to one longer than kMaxHostLength. The result
/// is never empty, and these limits bound memory and time, whatever the input.
std::vector<std::string> expand_hostlist(std::string_view text, std::string_view origin = "hostlist");

/// Expands SLURM's tasks per node: "2(x3),1" is 2 2 2 1. Throws UsageError in the same manner; counts are at
/// least 1.
std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view origin = "tasks per node");

}  // namespace lockstep::launch
