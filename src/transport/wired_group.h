#pragma once

#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "transport/call_board.h"
#include "transport/control.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace lockstep::transport {

class WiredTransfer;

/// A group of ranks whose engine only moves messages.
///
/// A message is an *envelope* of fixed size (header, length, and the payload itself if it is small), and the
/// payload if it is not. Both sides hand all of it to the engine at once, so that the engine moves all
/// messages while a thread waits for one of them. Payloads travel on channels whose number depends on header
/// and length: no payload moves between ranks that mean different things, and an engine never sees two sizes
/// for one message. The envelopes, compared in order, show the difference.
class WiredGroup final : public Transport {
 public:
  /// `members` are ranks of the job, in the order of the group's ranks; `number` is of no other group of any
  /// of them.
  WiredGroup(Wire& wire, Control& control, int rank, std::vector<int> members, uint64_t number);
  ~WiredGroup() override;

  std::unique_ptr<Transfer> send(Stream stream, int to, const Header& header, const void* data,
                                 size_t bytes) override;
  std::unique_ptr<Transfer> receive(Stream stream, int from, const Header& header, void* data,
                                    size_t bytes) override;

 private:
  friend class WiredTransfer;

  /// What one rank says to another in one stream.
  struct Lane {
    std::mutex mutex;
    std::deque<WiredTransfer*> transfers;  ///< In order.
    uint64_t ended = 0;                    ///< How many are gone.
    size_t looked = 0;                     ///< At one of them by turns, to see whether it moves.
    std::exception_ptr error;              ///< Nothing more comes on this lane.
  };

  Lane& lane(Stream stream, int peer, bool sends) {
    return lanes_[(static_cast<size_t>(stream) * static_cast<size_t>(world()) + static_cast<size_t>(peer)) *
                      2 +
                  (sends ? 1 : 0)];
  }
  uint64_t envelopes(Stream stream) const { return first_channel_ + static_cast<uint64_t>(stream); }
  uint64_t payloads(Stream stream, const Header& header, size_t bytes) const;
  std::unique_ptr<Wire::Post> post(const WiredTransfer& transfer, uint64_t channel, void* data, size_t bytes);
  /// As post.wait_for(), but throws as Transfer::wait does.
  bool look(Wire::Post& post, int peer, std::chrono::nanoseconds patience);
  /// Throws as Transfer::wait does.
  void await(WiredTransfer& transfer, const Limit& limit);
  /// Changes when something moves on the lane, sooner or later: looks at one message, and counts a look.
  static uint64_t moved_on(Lane& lane, int& looks);
  /// Changes when something moves that keeps the transfer from its timeout.
  uint64_t moved_for(WiredTransfer& transfer);
  /// Throws Interrupted if the control plane soon knows why, else PeerError.
  [[noreturn]] void explain(int peer, const Wire::Broken& broken);

  Wire& wire_;
  Control& control_;
  const std::vector<int> members_;
  const uint64_t first_channel_;
  std::deque<Lane> lanes_;             ///< By stream, peer and direction.
  size_t looked_at_ = 0;               ///< The lane of collectives that is next to be looked at.
  uint64_t looked_in_ = 0;             ///< The call in which this rank last looked at the board,
  Control::Clock::time_point looked_;  ///< and when.
  CallBoard board_;
};

}  // namespace lockstep::transport
