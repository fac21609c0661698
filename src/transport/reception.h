#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/unique_fd.h"
#include "transport/greeting.h"
#include "transport/meeting.h"

namespace lockstep::transport {

/// A rank that has come to rank 0.
struct Newcomer {
  Claim claim;
  std::string where;  ///< "pid 4711"
  launch::UniqueFd socket;
  launch::UniqueFd descriptor;  ///< That it brought, if any.
  launch::UniqueFd process;     ///< Its pidfd, if it is on this host.

  /// "rank 3 (pid 4711)"
  std::string who() const;
};

/// Somebody who knocked, and has yet to show that it is a rank.
class Guest {
 public:
  enum class Standing { kUnknown, kKnown, kStranger };

  virtual ~Guest() = default;
  virtual int fd() const = 0;
  /// Reads what has come, without waiting; reads nothing that follows what makes it known.
  virtual Standing read() = 0;
  /// Once it is known.
  virtual Newcomer take() = 0;
  /// Its place is needed: it may come again.
  virtual void send_away() {}
};

/// How a meeting takes those who knock.
struct Door {
  int listener = -1;  ///< A listening socket that does not block.
  /// Lets in one who connected; nullptr if it is not worth a place.
  std::function<std::unique_ptr<Guest>(launch::UniqueFd)> open;
  /// What rank 0's text says of it at the deadline, such as "it listens on 127.0.0.1:29500"; may be empty.
  std::string where = {};
  /// What else than the meeting's name ranks must have alike, such as " and token"; may be empty.
  std::string also_alike = {};
};

/// On rank 0: takes in all other ranks and returns them by rank; the place of rank 0 is empty. Strangers are
/// turned away and do no harm: at most 64 are listened to at a time, each for 5 s, or 1 s if others wait. If
/// a rank comes twice, comes with another world size, or dies, or if some do not come until the deadline, all
/// who came are told, and it throws.
std::vector<Newcomer> receive_ranks(const Meeting& meeting, const Door& door);

}  // namespace lockstep::transport
