#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "launch/lines.h"
#include "launch/live_output.h"
#include "launch/unique_fd.h"

namespace lockstep::launch {

/// Where one stream of one rank goes: its log file, live output under a prefix, and the last lines in memory.
class StreamLog {
 public:
  /// Opens the file and holds a lock on it: two jobs that write the same logs are refused by UsageError. What
  /// is in it stays until begin().
  StreamLog(const std::filesystem::path& file, int live_fd, bool live, std::string prefix);

  /// Empties the file; call when the job has started.
  void begin(LiveOutput& output);
  void feed(std::string_view bytes, LiveOutput& output);
  /// Gives out a last line without newline; call when the rank has ended.
  void finish(LiveOutput& output);
  /// Writes a line of the launcher's own, such as the marker of a restart, on a line of its own to the
  /// file; forgets the last lines.
  void mark(std::string_view line);

  const std::deque<std::string>& last_lines() const { return last_lines_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  static constexpr size_t kLastLines = 20;
  static constexpr size_t kLastLineBytes = 2000;

  void take(std::string_view line, LiveOutput& output);
  void write_file(std::string_view bytes, LiveOutput& output);

  std::filesystem::path file_;
  UniqueFd fd_;
  int live_fd_;
  bool live_;
  std::string prefix_;
  LineSplitter splitter_;
  std::deque<std::string> last_lines_;
  bool in_line_ = false;  ///< The file lacks its last newline.
};

}  // namespace lockstep::launch
