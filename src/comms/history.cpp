#include "comms/history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace lockstep::comms {

std::string History::text() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> told;
  for (size_t i = count_ - std::min(count_, kKept); i < count_;) {
    // Equal calls in a row are told once.
    const size_t first = i;
    transport::Header like = calls_[first % kKept];
    do {
      ++i;
      ++like.call;
    } while (i < count_ && calls_[i % kKept] == like);
    const std::string from = i - first > 1 ? fmt::format("{} to ", title(calls_[first % kKept])) : "";
    told.push_back(from + describe(calls_[(i - 1) % kKept]));
  }
  if (told.empty()) return "";
  told.erase(told.begin(), told.end() - static_cast<std::ptrdiff_t>(std::min(told.size(), kTold)));
  return fmt::format("last calls of this rank: {}", fmt::join(told, ", "));
}

}  // namespace lockstep::comms
