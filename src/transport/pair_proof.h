#pragma once

#include <vector>

#include "transport/control.h"
#include "transport/proof.h"
#include "transport/wire.h"

namespace lockstep::transport {

/// Every rank proves to every other, in the first message of each direction, that it knows `key`, which went
/// over the control plane alone. Engines that take whoever connects first thus fail clearly, instead of
/// giving a stranger's data. Throws PeerError naming the rank in whose place another answered, TimeoutError
/// at the deadline.
void prove_pairs(Wire& wire, Control& control, int rank, int world, const Key& key,
                 Control::Clock::time_point deadline);

}  // namespace lockstep::transport
