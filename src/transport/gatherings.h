#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/control.h"
#include "transport/messages.h"

namespace lockstep::transport {

/// The gathers under way, as rank 0 sees them: who is a member, who has given. Blobs are not kept: they are
/// passed on as they come.
class Gatherings {
 public:
  explicit Gatherings(int world) : world_(world) {}

  /// Notes what `rank` gave, and forgets a gather to which all have given. Returns what is wrong with it: the
  /// ranks do not agree who gathers, or one gave twice. Throws FrameError if no rank could mean it.
  std::optional<Failure> give(int rank, const Gather& gather);

 private:
  struct Pending {
    int first = 0;  ///< The rank that gave first, and so named the members.
    std::vector<int> members;
    std::set<int> given;
  };

  int world_;
  std::map<std::string, Pending> pending_;
};

/// Throws UsageError unless `rank` of a job of `world` may call all_gather so.
void check_gather(int rank, int world, const std::string& tag, const std::vector<int>& members,
                  const std::string& blob);

/// A hash of a gather's members, by which they tell whether they mean the same.
std::uint64_t group_of(const std::vector<int>& members);

/// "ranks 0, 2 and 5".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace lockstep::transport
