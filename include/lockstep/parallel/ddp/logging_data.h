#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// When a bucket's last gradient came, when it was sent and when it was reduced: microseconds since backward
/// reached the model.
struct BucketTimes {
  double ready_us = 0;
  double launch_us = 0;
  double done_us = 0;
};

/// What DistributedDataParallel knows of itself and of its last synchronised step.
struct DdpLoggingData {
  int rank = 0;
  int world_size = 1;
  std::string engine;
  int64_t parameters = 0;             ///< That need a gradient, a tied one once.
  int64_t gradient_bytes = 0;         ///< Of all of them.
  std::vector<int64_t> bucket_bytes;  ///< As made by the constructor, in the order of sending.
  std::vector<int64_t>
      rebuilt_bucket_bytes;  ///< After the first step, in the order of arrival; before: none.
  bool overlaps = false;     ///< Whether buckets are reduced while backward goes on.

  int64_t steps = 0;  ///< Synchronised so far.
  std::vector<BucketTimes> buckets;
  double backward_us = 0;       ///< Until backward had computed its last gradient.
  double communication_us = 0;  ///< In which some bucket was being reduced.
  double exposed_us = 0;        ///< Of these, those after backward had computed its last gradient.
  double overlap() const {      ///< What part of communication was hidden.
    return communication_us > exposed_us ? 1 - exposed_us / communication_us : 0;
  }
};

}  // namespace lockstep
