#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/unique_fd.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"

namespace lockstep::transport {

/// What went wrong first, in the words that every rank throws.
struct Failure {
  int peer = -1;  ///< The rank at fault; -1 if it is not known.
  std::string text;
  bool timed_out = false;  ///< Every rank throws TimeoutError; otherwise PeerError.

  [[noreturn]] void raise() const {
    if (timed_out) throw TimeoutError(text, peer);
    throw PeerError(text, peer);
  }
};

/// The control plane of a job: apart from the engine that moves data, open for the job's life. A star: rank 0
/// serves, in a thread of its own; every rank, rank 0 too, has one connection to it and a thread that
/// listens.
///
/// It carries what ranks must tell each other to meet (`all_gather`), who died (a connection that ends
/// without a goodbye), and the first failure's text.
class Control {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Control() = default;

  /// Every member gives a blob and gets all members' blobs, in the order of `members` (ranks of the job,
  /// ascending, this one among them). `tag` names the meeting: equal on all members, and used once. Throws
  /// PeerError if the job fails meanwhile, TimeoutError (naming the ranks that did not come) at the deadline.
  /// At most 1 MiB a blob.
  virtual std::vector<std::string> all_gather(const std::string& tag, const std::vector<int>& members,
                                              const std::string& blob, Clock::time_point deadline) = 0;

  /// Tells everybody that the job has failed. The first failure wins; from then on it is everybody's.
  virtual void fail(const Failure& failure) = 0;

  /// Whether the job has failed: for any thread, as often as need be.
  virtual const std::atomic<bool>& failed_flag() const = 0;
  bool has_failed() const { return failed_flag().load(std::memory_order_acquire); }

  /// The first failure, if any.
  virtual std::optional<Failure> failure() const = 0;

  /// Whether a rank has said that it is done. What it did before can be seen by then.
  virtual bool has_left(int rank) const = 0;

  /// This rank is done. The other ranks then do not take the end of its connection for its death. Rank 0
  /// stays until the others are done too, or until the deadline: with it goes the star.
  virtual void leave(Clock::time_point deadline) = 0;
};

/// What a call throws that waits for a rank that has left.
inline PeerError has_left_error(int peer) {
  return {"rank " + std::to_string(peer) + " has left the job; hint: all ranks must make the same calls",
          peer};
}

/// Descriptors that came with a meeting on one host, in the order of ranks.
struct Host {
  std::unique_ptr<Control> control;
  std::vector<launch::UniqueFd> descriptors;
};

struct MeetOptions {
  int rank = 0;
  int world = 1;
  std::string name;  ///< Of the meeting: equal on all ranks, and of no other job of this user.
  Control::Clock::time_point deadline;
};

/// Meets the other ranks on this host, through an abstract unix socket: no port, nothing to clean up. Both
/// sides check that the other has the same uid. Each rank hands in one descriptor and gets one of every rank.
Host meet_on_host(const MeetOptions& options, int descriptor);

struct NetworkOptions {
  std::string address;  ///< Of rank 0: the only one that is bound.
  int port = 0;
  std::string token;  ///< The job's secret: whoever does not know it is turned away.
};

/// Meets the other ranks over TCP. Rank 0 binds exactly the named address. Each side proves that it knows the
/// token by an HMAC over the other's challenge, before anything else is read; lengths are capped before and
/// after.
std::unique_ptr<Control> meet_on_network(const MeetOptions& options, const NetworkOptions& network);

}  // namespace lockstep::transport
