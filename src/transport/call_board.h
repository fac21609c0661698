#pragma once

#include <optional>
#include <vector>

#include "transport/transport.h"
#include "transport/wire.h"

namespace lockstep::transport {

/// Where ranks that wait long show each other which collective they are in. Messages are compared as they
/// come; but two ranks in different calls may both only send, or both only receive. Silent while calls are
/// quick. For one thread at a time.
class CallBoard {
 public:
  /// `members` are ranks of the job, in the order of the group's ranks.
  CallBoard(Wire& wire, int rank, std::vector<int> members, uint64_t channel);

  /// This rank, in the call `header`, has waited long for `peer`, and tells it so. Throws Mismatch if any
  /// rank has shown another header for the same call.
  void look(const Header& header, int peer);

 private:
  struct Note {
    Header header;
    std::unique_ptr<Wire::Post> post;
  };
  struct Seat {
    std::unique_ptr<Note> told = {};  ///< At most one on its way: a rank that does not look is not flooded.
    std::unique_ptr<Note> coming = {};
    std::optional<Header> heard = {};
  };

  void tell(const Header& header, int peer);
  void listen(int peer);

  Wire& wire_;
  const int rank_;
  const std::vector<int> members_;
  const uint64_t channel_;
  std::vector<Seat> seats_;
};

}  // namespace lockstep::transport
