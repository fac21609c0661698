#include "comms/history.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::comms {

std::string History::text() const {
  std::string text;
  for (size_t i = count_ - std::min(count_, kKept); i < count_;) {
    // Equal calls in a row are told once.
    const size_t first = i;
    transport::Header like = calls_[first % kKept];
    do {
      ++i;
      ++like.call;
    } while (i < count_ && calls_[i % kKept] == like);
    text += text.empty() ? "last calls of this rank: " : ", ";
    if (i - first > 1) text += fmt::format("{} to ", title(calls_[first % kKept]));
    text += describe(calls_[(i - 1) % kKept]);
  }
  return text;
}

}  // namespace lockstep::comms
