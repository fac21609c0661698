#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "transport/call_board.h"
#include "transport/control.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace lockstep::transport {

class WiredReceive;

/// A group of ranks whose engine only moves messages.
///
/// A message is an *envelope* of fixed size (header, length, and the payload itself if it is small), then the
/// payload if it is not. The receiver asks for a payload only when the envelope is the one that it expects,
/// so that no engine ever sees two sizes for one message.
class WiredGroup final : public Transport {
 public:
  /// `members` are ranks of the job, in the order of the group's ranks; `number` is of no other group of any
  /// of them.
  WiredGroup(Wire& wire, Control& control, int rank, std::vector<int> members, uint64_t number);
  ~WiredGroup() override;

  std::unique_ptr<Transfer> send(Stream stream, int to, const Header& header, const void* data,
                                 size_t bytes) override;
  std::unique_ptr<Transfer> announce(Stream stream, int to, const Header& header, const void* data,
                                     size_t bytes) override;
  std::unique_ptr<Transfer> receive(Stream stream, int from, const Header& header, void* data,
                                    size_t bytes) override;
  bool native_sum(float* data, int64_t count) override;

 private:
  friend class WiredSend;
  friend class WiredReceive;

  /// What two ranks say to each other in one stream.
  struct Lane {
    std::mutex sending;  ///< Envelope and payload of one message go behind each other.

    std::mutex mutex;  ///< Of what follows.
    std::condition_variable moved;
    std::deque<WiredReceive*> receives;  ///< In order; the first is served by whoever waits for any of them.
    bool served = false;                 ///< Some thread serves the first.
    std::exception_ptr error;            ///< Nothing more comes on this lane.
  };

  /// Whom and what a thread waits for.
  struct Awaited {
    Stream stream;
    int peer;
    const Header& header;
    const char* act;  ///< "send" or "receive": what the peer did not do
  };

  Lane& lane(Stream stream, int peer) {
    return lanes_[static_cast<size_t>(stream) * static_cast<size_t>(world()) + static_cast<size_t>(peer)];
  }
  bool has_quiet_waits() const { return wire_.has_quiet_waits(); }
  std::unique_ptr<Wire::Post> post_send(Stream stream, int to, const void* data, size_t bytes);
  std::unique_ptr<Wire::Post> post_receive(Stream stream, int from, void* data, size_t bytes);
  /// Throws as Transfer::wait does.
  void await(Wire::Post& post, const Awaited& awaited, const Limit& limit);
  bool look_once(Wire::Post& post, int peer);
  /// Throws Interrupted if the control plane soon knows why, else PeerError.
  [[noreturn]] void explain(int peer, const Wire::Broken& broken);

  Wire& wire_;
  Control& control_;
  const std::vector<int> members_;
  const uint64_t first_channel_;
  std::deque<Lane> lanes_;  ///< By stream, then by peer.
  CallBoard board_;
};

}  // namespace lockstep::transport
