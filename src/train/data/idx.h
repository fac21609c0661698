#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

/// The most values that parse_idx() reads.
inline constexpr int64_t kMaxIdxValues = int64_t{1} << 30;

/// What an IDX file of unsigned bytes holds, as MNIST's are: labels, of shape {count}, or images, of shape
/// {count, rows, columns}, the last turning fastest.
struct Idx {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
};

/// Reads the format: a magic number 0x00000801 or 0x00000803, whose last byte is the number of dimensions,
/// the dimensions (all numbers 32 bits, the greatest byte first), then the values, and nothing behind them.
/// Throws UsageError, naming `name`, what was found and what was expected, if `bytes` are not just that.
Idx parse_idx(std::string_view bytes, const std::string& name);

/// parse_idx() of a file's bytes. Throws UsageError, naming it, if it cannot be read.
Idx read_idx(const std::filesystem::path& file);

}  // namespace lockstep::train
