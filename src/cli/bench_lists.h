#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

// The lists with commas that benchmarks of collectives take. All are checked before a rank is started; each
// throws UsageError naming flag and value.

/// Engines whose ranks are processes, in the order given, each once.
std::vector<std::string> parse_engines(const std::string& list);

/// Bytes, in the order given, each once; from one float32 to what `copies` buffers of it leave of this
/// machine's memory.
std::vector<int64_t> parse_sizes(const std::string& list, int64_t copies);

/// Algorithms of a collective as they are spelled in plans, or `native`; every engine can run each at every
/// size.
std::vector<std::string> parse_algorithms(const std::string& collective, const std::string& list,
                                          const std::vector<std::string>& engines,
                                          const std::vector<int64_t>& sizes);

/// Why an engine cannot run an algorithm of an all-reduce of so many bytes; empty if it can.
std::string why_not(const std::string& collective, const std::string& engine, const std::string& algorithm,
                    int64_t bytes);

}  // namespace lockstep::cli
