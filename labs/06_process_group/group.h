#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

/// What lesson 6 is written against, beside lab/world.h.
namespace lab {

/// Environment variables by name.
using Environment = std::map<std::string, std::string>;

/// Who a process is among all processes of its job.
struct Place {
  int rank = 0;
  int world_size = 1;
};

/// Rank 0's telephone: the other processes dial in when they have started, and say which rank they are. Its
/// clock is not real.
class Line {
 public:
  virtual ~Line() = default;

  /// Waits for the next one who dials in, and says who that claims to be; nothing if nobody has called when
  /// the clock shows `until_s`.
  virtual std::optional<int> next_caller(double until_s) = 0;
  /// The clock, in seconds from the start of the job.
  virtual double now_s() const = 0;
};

/// What rank 0 knows when the roll call is over. All have come if nobody came twice and nobody is missing.
struct Roll {
  int twice = -1;                 ///< A rank that two processes claim to be; -1 if there is none.
  std::vector<int> missing = {};  ///< Ranks that had not come at the deadline, in ascending order.
};

}  // namespace lab
