#include "comms/history.h"

#include <algorithm>

namespace lockstep::comms {

std::string History::text() const {
  std::string text;
  for (size_t i = count_ - std::min(count_, kKept); i < count_; ++i) {
    text += (text.empty() ? "last calls of this rank: " : ", ") + describe(calls_[i % kKept]);
  }
  return text;
}

}  // namespace lockstep::comms
