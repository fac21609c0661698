#pragma once

#include <filesystem>
#include <string>

namespace lockstep::test {

/// A control group of its own whose processes together may have so much memory. It is removed with this
/// object, if its processes have ended.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t bytes);
  ~MemoryLimit();

  /// Why there can be none on this machine; empty if there can. For GTEST_SKIP.
  const std::string& why_not() const { return why_not_; }
  /// Moves the calling process into the group.
  void enter() const;

 private:
  std::filesystem::path folder_;
  std::string why_not_;
};

}  // namespace lockstep::test
