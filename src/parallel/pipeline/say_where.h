#pragma once

#include <string>

#include "lockstep/error.h"

namespace lockstep::pipeline {

/// Runs `act`. What it throws because of another rank then begins with `where()`, and keeps its type.
template <typename Where, typename Act>
decltype(auto) say_where(const Where& where, const Act& act) {
  try {
    return act();
  } catch (const TimeoutError& error) {
    throw TimeoutError(where() + ": " + error.what(), error.peer);
  } catch (const PeerError& error) {
    throw PeerError(where() + ": " + error.what(), error.peer);
  }
}

}  // namespace lockstep::pipeline
