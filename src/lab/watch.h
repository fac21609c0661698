#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "launch/unique_fd.h"

namespace lockstep::lab {

/// Tells when a file was saved. It watches the folder: editors replace files rather than write them.
class FileWatch {
 public:
  /// Throws Error if the folder cannot be watched.
  explicit FileWatch(const std::filesystem::path& folder);

  enum class Event : uint8_t { kSaved, kKey, kEnd };
  /// Waits until a C++ file of the folder was saved and 200 ms have passed since, or a key was pressed on
  /// standard input (if `keys`), or `is_over` says so, which is asked twice a second and after a signal.
  Event wait(bool keys, const std::function<bool()>& is_over);

 private:
  launch::UniqueFd fd_;
};

}  // namespace lockstep::lab
