#pragma once

#include <string>

#include "lockstep/error.h"

namespace lockstep::test {

/// What a call is refused with; "accepted" if it is not.
template <typename Refusal = UsageError, typename Call>
std::string refusal_of(const Call& call) {
  try {
    call();
    return "accepted";
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
}

}  // namespace lockstep::test
