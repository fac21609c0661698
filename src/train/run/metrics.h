#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/run/append_file.h"

namespace lockstep::train {

/// What one step of a training run had to say.
struct StepMetrics {
  int64_t step = 0;  ///< Counted from 1.
  double loss = 0;
  double lr = 0;
  double tokens_per_s = 0;
  double gradient_norm = 0;
  double exposed_ms = 0;  ///< Communication that nothing hid.
};

/// `{"step":12,"loss":2.25,"lr":0.001,"tokens_per_s":8192,"gradient_norm":1.5,"exposed_ms":0.25}` and a
/// newline: each number in the fewest digits that read back to the same bits, null if it is not finite.
std::string to_line(const StepMetrics& metrics);

/// metrics.jsonl of a run: each step once, in order, whatever happened to the processes that wrote it.
class MetricsFile {
 public:
  /// Opens `file` for appending behind step `last_step`, with which the run resumes; 0 begins anew. Lines of
  /// later steps, which are to come again, and a torn last line, both left by a process that was killed, are
  /// cut away. A file that is not there is made, and a step that is not there stays missing.
  ///
  /// Throws UsageError naming file and line if an earlier line is not what to_line() writes, or its step not
  /// above the one before it; Error if the file cannot be written, or another process writes it.
  MetricsFile(const std::filesystem::path& file, int64_t last_step);

  /// One write() of the whole line. Throws UsageError if the step is not above the last one, Error if the
  /// line does not go in; then the file is as it was.
  void append(const StepMetrics& metrics);

 private:
  AppendFile file_;
  int64_t last_step_;
};

/// The lines of `file`; a torn last line, such as one that is being written, is left out. What was not finite
/// is NaN. Throws UsageError naming file and line, in the manner of MetricsFile. It takes memory of
/// at most twice the file's size.
std::vector<StepMetrics> read_metrics(const std::filesystem::path& file);

}  // namespace lockstep::train
