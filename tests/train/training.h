#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/child.h"
#include "support/temporary_folder.h"

namespace lockstep::test {

/// A folder in which `lockstep train` and its sisters run, with a small model that drops out.
class Training {
 public:
  Training();

  using Words = std::vector<std::string>;

  /// A verb and its words; the working folder is this one's.
  std::unique_ptr<Child> start(Words words) const;
  /// Runs it to its end, which must have this exit code; its output.
  std::string run(const Words& words, int code = 0);
  /// `train` with the small model on few samples.
  Words train(const std::string& run, const Words& more = {}) const;

  /// Lines of a run's metrics, without what depends on the clock: step, loss, lr and norm.
  std::vector<std::string> metrics(const std::string& run) const;
  /// A hash of the bytes of a run's weights and optimizer state after a step.
  size_t weights(const std::string& run, int step) const;
  /// Whether the run has done so many steps.
  bool has_done(const std::string& run, size_t steps) const;

  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  const std::string& errors() const { return errors_; }

 private:
  TemporaryFolder folder_;
  std::string errors_;
};

}  // namespace lockstep::test
