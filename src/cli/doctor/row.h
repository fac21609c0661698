#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::cli::doctor {

inline constexpr uint64_t kMebibyte = uint64_t{1} << 20;
inline constexpr uint64_t kGibibyte = uint64_t{1} << 30;

enum class Status { kOk, kWarning, kFault };

/// The word that tables and JSON show.
std::string_view to_string(Status status);

/// One line of the table.
struct Row {
  std::string name;
  Status status = Status::kOk;
  std::string value = {};                         ///< What was found, one line.
  std::string mend = {};                          ///< A shell command that mends it; never empty unless ok.
  std::map<std::string, double> numbers = {};     ///< For JSON: what was measured; no entry for unlimited.
  std::map<std::string, std::string> names = {};  ///< For JSON: versions, kernels, paths.
};

/// 1536 -> "1.5 KiB".
std::string bytes_text(uint64_t bytes);

/// "1 core", "2 cores".
std::string count_text(int64_t count, std::string_view noun);

}  // namespace lockstep::cli::doctor
