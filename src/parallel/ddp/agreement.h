#pragma once

#include <string>
#include <vector>

#include "lockstep/comms/communicator.h"

namespace lockstep::ddp {

/// Everybody's text, in rank order. All ranks call it.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& text);

/// "rank 0: a; ranks 1, 3: b": who says what, the first one first; of texts in rank order.
std::string summary_of(const std::vector<std::string>& texts);

/// Compares lists of descriptions; the same answer on all ranks. The first difference between rank 0 and
/// another rank, such as "rank 0 has 'weight', [4, 4], float32, rank 2 has 'weight', [4, 5], float32"; "" if
/// there is none.
std::string first_difference(Communicator& comm, const std::vector<std::string>& descriptions);

}  // namespace lockstep::ddp
