#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "lockstep/comms/communicator.h"
#include "lockstep/error.h"

namespace lockstep::parallel {

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

/// The same for whatever it throws, and on all ranks: what is not another rank's doing ends the job.
template <typename Where, typename Act>
void say_everywhere(Communicator& comm, const Where& where, const Act& act) {
  const auto fail = [&](const char* why) {
    const std::string text = where() + ": " + why;
    comm.abort(text);
    throw Error(text);
  };
  try {
    say_where(where, act);
  } catch (const PeerError&) {
    throw;  // it is everybody's already
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());  // a page of addresses would hide what it says
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

}  // namespace lockstep::parallel
