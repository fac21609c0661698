#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "transport/transport.h"
#include "transport/wire.h"

namespace lockstep::transport {

/// Where ranks that wait long show each other which collective they are in, and since when nothing moves.
/// Messages are compared as they come; but two ranks in different calls may both only send, or both only
/// receive. And a rank for which nothing moves may wait for one whose own data is slow. Silent while calls
/// are quick. For one thread at a time.
class CallBoard {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `members` are ranks of the job, in the order of the group's ranks.
  CallBoard(Wire& wire, int rank, std::vector<int> members, uint64_t channel);

  /// This rank, in the call `header`, has waited long for `peer`, and something last moved here at `moved`.
  /// Asks the peer, and answers those that asked. Returns when something last moved at the peer, or at the
  /// one that the peer waits for in turn; it may be later than this rank knows. Throws Mismatch if any rank
  /// has shown another header for the same call.
  Time look(const Header& header, int peer, Time moved);

  /// Whom this rank, which waits for `peer`, waits for in the end: the peer, or the rank that the peer has
  /// recently said it waits for.
  int awaited_through(int peer) const;

 private:
  struct Note {
    Header header = {};
    int64_t idle_ms = 0;    ///< Since something last moved.
    uint32_t question = 0;  ///< Its number, counted from 1; 0: none.
    uint32_t answer = 0;    ///< To the question of this number.
    int32_t awaited = 0;    ///< Whom the sender waits for in the end.
  };
  struct Letter {
    Note note = {};
    std::unique_ptr<Wire::Post> post = {};
  };
  struct Seat {
    std::unique_ptr<Letter> sent = {};  ///< At most one on its way: a rank that does not look is not flooded.
    std::unique_ptr<Letter> coming = {};
    std::optional<Header> shown = {};  ///< By the peer, most recently.
    uint32_t asked = 0;                ///< This rank's last question,
    Time asked_at = {};                ///< when it was asked,
    Header asked_in = {};              ///< in which call,
    bool is_answered = true;
    uint32_t to_answer = 0;  ///< The peer's last question; 0: none is open.
    int awaited = -1;        ///< Whom the peer waits for in the end, as it last said.
    Time moved = Time::min();
  };

  void send(const Note& note, int peer);
  void receive(int peer);

  Wire& wire_;
  const int rank_;
  const std::vector<int> members_;
  const uint64_t channel_;
  std::vector<Seat> seats_;
};

}  // namespace lockstep::transport
