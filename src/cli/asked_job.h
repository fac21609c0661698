#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/environment.h"
#include "launch/unique_fd.h"

namespace lockstep::cli {

// A benchmark of several systems takes turns: it asks one job's ranks at a time, each over a pipe of its own,
// and the ranks of all others sleep in read(). A question and an answer are one line of JSON each.

/// One line at a time from a pipe that stays open.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  /// Reads once; a whole line if there is one now, nothing otherwise. `ended()` tells of the other side's
  /// end.
  std::optional<std::string> read_some();
  bool ended() const { return ended_; }

 private:
  int fd_;
  bool ended_ = false;
  std::string buffer_;
};

/// A number of an answer. JSON has no word for what is not finite: null, which becomes NaN.
double number_of(const nlohmann::json& json);

/// A job of ranks that `lockstep run` started and that wait to be asked.
class AskedJob {
 public:
  struct Options {
    std::string name;                  ///< Distinguishes the jobs of a folder, and tells people who failed.
    std::filesystem::path folder;      ///< Where pipes and logs are made.
    std::filesystem::path command;     ///< `lockstep`.
    std::vector<std::string> program;  ///< What each rank runs.
    int world = 1;
    launch::Environment environment;  ///< Of the launcher, whole.
  };

  explicit AskedJob(const Options& options);
  AskedJob(const AskedJob&) = delete;
  AskedJob& operator=(const AskedJob&) = delete;
  /// Closes the pipes, at which ranks end by themselves, and ends those that do not.
  ~AskedJob();

  /// Asks every rank at once and waits for all; their answers, by rank. Throws Error, with what the job said,
  /// if it ends first or `limit` passes.
  std::vector<nlohmann::json> ask(const nlohmann::json& question,
                                  std::chrono::seconds limit = std::chrono::minutes(30));

 private:
  struct Rank {
    launch::UniqueFd question;
    launch::UniqueFd answer;
    LineReader reader;
  };
  void start(const Options& options);
  bool has_ended();
  bool ends_within(std::chrono::seconds limit);
  [[noreturn]] void fail(const std::string& what) const;

  const std::string name_;
  const std::filesystem::path log_;
  std::vector<Rank> ranks_;
  pid_t launcher_ = -1;
};

/// A rank's side of it.
class AskedRank {
 public:
  AskedRank(const std::filesystem::path& folder, const std::string& job, int rank);
  /// Sleeps until there is a question; nothing when there will be none.
  std::optional<nlohmann::json> next();
  void answer(const nlohmann::json& answer);

 private:
  launch::UniqueFd question_;
  launch::UniqueFd answer_;
  LineReader reader_;
};

}  // namespace lockstep::cli
