#pragma once

#include <string>

#include "lockstep/comms/types.h"
#include "lockstep/plan/plan.h"
#include "transport/transport.h"

namespace lockstep::comms {

/// The operation number of a header: a collective's own, or one of these.
constexpr uint8_t kPointToPoint = 255;
constexpr uint8_t kSplit = 254;

/// "all_reduce #812": how errors name a call.
std::string title(const transport::Header& header);

/// "all_reduce #812 (sum of 4096 float32, algorithm push)": a call with all that ranks must agree on.
std::string describe(const transport::Header& header);

}  // namespace lockstep::comms
