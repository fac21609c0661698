#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/environment.h"
#include "support/temporary_folder.h"

namespace lockstep::test {

using std::chrono::seconds;

/// Long enough for a loaded machine and a sanitizer, short enough to fail.
constexpr seconds kPatience{60};

/// Looks again every millisecond until `holds` or kPatience is over; returns whether it held.
bool eventually(const std::function<bool()>& holds);

std::string read_file(const std::filesystem::path& file);

/// A started program whose whole family carries a mark in its environment, so that whoever is left can be
/// found.
class Child {
 public:
  struct Options {
    launch::Environment environment = {};  ///< On top of this process's own.
    std::filesystem::path folder = {};     ///< Working folder; the child's own temporary one if empty.
    std::string input = {};                ///< Standard input.
    int stdout_fd = -1;                    ///< Instead of the file that output() reads.
    std::function<void()> before = {};     ///< In the child, before it becomes the program.
  };

  explicit Child(const std::vector<std::string>& command, const Options& options);
  explicit Child(const std::vector<std::string>& command) : Child(command, Options{}) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  ///< Kills the whole family.

  pid_t pid() const { return pid_; }
  void send(int signal) const;
  /// Waits for the end and returns the exit code, 128 + signal for a signal; throws after kPatience.
  int wait();
  /// Living processes that carry the mark, the program itself included.
  std::vector<pid_t> family() const;
  /// Whether the family is gone, after a while for the kernel to end what was killed.
  bool leaves_nothing() const;

  std::string output() const { return read_file(folder_ / "output"); }
  std::string errors() const { return read_file(folder_ / "errors"); }
  /// The temporary folder of this child.
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  std::string mark_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

/// How a program ended, and all that it said.
struct Finished {
  int exit_code;
  std::string output;
  std::string errors;
};

Finished run_to_end(const std::vector<std::string>& command, const Child::Options& options = {});

}  // namespace lockstep::test
