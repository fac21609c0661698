#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/patience.h"

namespace lockstep::transport {

/// What a rank says of the call that it is in. It travels with every message and with the first flag of every
/// one-sided run, and both sides compare before any data is used: a mismatch is an error, never wrong data.
struct Header {
  uint64_t call = 0;  ///< Number of the collective on its communicator; 0 for point to point.
  int64_t count = 0;  ///< Elements, as the caller gave them.
  int32_t root = 0;   ///< Point to point: the tag.
  uint8_t operation = 0;
  uint8_t type = 0;
  uint8_t reduce = 0;
  uint8_t algorithm = 0;
  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 24);

/// Which of the streams between two ranks: their messages do not wait for each other.
enum class Stream : uint8_t { kCollective, kPointToPoint };
constexpr int kStreams = 2;

/// Two ranks are in different calls. The communicator makes the text of it.
struct Mismatch {
  int peer;
  Header ours;
  Header theirs;
};

/// The job has failed elsewhere; the control plane knows the text.
struct Interrupted {};

/// A message on its way. Must be waited for before it is destroyed, unless the job has failed. Several
/// threads may test and wait.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Whether it is over; moves on all messages of its stream. Throws as wait() does.
  virtual bool test() = 0;
  /// Until it is over; moves on all messages of its stream meanwhile. Throws Interrupted, Mismatch, or
  /// TimeoutError naming the peer if nothing has moved for the limit's time: neither this message nor an
  /// earlier one of the same direction between the same ranks; of a collective nothing at all, here or at
  /// the rank that is waited for.
  virtual void wait(const Limit& limit) = 0;
  /// Changes whenever this message, or an earlier one that it must follow, moves.
  virtual uint64_t moved() = 0;
  /// Whether it moves on only while some thread of this rank waits for something.
  virtual bool needs_company() { return false; }
};

class OneSided;

/// How bytes move between the ranks of a group. Messages from one rank to another in one stream arrive in
/// order. Thread-safe.
class Transport {
 public:
  Transport(int rank, int world) : rank_(rank), world_(world) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }

  /// Starts to send. The data must stay until it is over.
  virtual std::unique_ptr<Transfer> send(Stream stream, int to, const Header& header, const void* data,
                                         size_t bytes) = 0;
  /// Starts to receive exactly `bytes` bytes under exactly this header.
  virtual std::unique_ptr<Transfer> receive(Stream stream, int from, const Header& header, void* data,
                                            size_t bytes) = 0;

  /// This rank gives up its calls: what others read of its buffers from now on is void.
  virtual void withdraw() {}

  /// Memory that all ranks can reach, or null.
  virtual OneSided* one_sided() { return nullptr; }

 private:
  const int rank_;
  const int world_;
};

/// Flags and memory that all ranks of a group can load and store. A *run* is one execution of a one-sided
/// plan. All ranks make the same runs in the same order.
class OneSided {
 public:
  virtual ~OneSided() = default;

  /// Begins a run. Waits, if need be, until nobody uses this rank's inbox and bounce memory of the run before
  /// the last.
  virtual void begin(const Header& header, const Limit& limit) = 0;
  /// Before the first flag: where this rank's data is; null if it lies outside of shared memory.
  virtual void share(const void* data) = 0;
  /// Raises this rank's flag; the first time, header, data and inbox become visible.
  virtual void post() = 0;
  /// Wakes those that sleep until the flag is raised. Apart from post(), since the wait for other flags,
  /// which wakes them too, mostly follows: the flag's way to the others then costs no time of its own.
  virtual void settle() = 0;
  /// Until a rank has raised its flag so often in this run. Throws as Transfer::wait does.
  virtual void wait(int peer, int flag, const Limit& limit) = 0;
  /// After a wait for the peer's first flag: its data in this process's addresses; null if it is not shared.
  /// Throws PeerError if the peer's place for so many bytes is not within its memory.
  virtual std::byte* data_of(int peer, size_t bytes) = 0;
  /// After data of a peer that does not wait for this rank was read: whether the peer had given up by then.
  virtual bool has_withdrawn(int peer) = 0;
  /// Small memory of this run that peers may read until they begin the next but one.
  virtual std::byte* inbox_of(int peer) = 0;
  /// Bounce memory, kept as the inbox is: two halves, used by turns.
  virtual std::byte* bounce_of(int peer) = 0;

  virtual bool contains(const void* data, size_t bytes) const = 0;
  /// How this rank tells others where something in its shared memory is.
  virtual int64_t offset_of(const void* data) const = 0;
  /// What a peer told: in this process's addresses. Throws PeerError if [offset, offset + bytes) is not
  /// within.
  virtual std::byte* reach(int peer, int64_t offset, size_t bytes) = 0;
  /// Null after a failure.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* memory) = 0;

  static constexpr size_t kInboxBytes = 2048;
  static constexpr size_t kBounceBytes = size_t{256} << 10;
};

}  // namespace lockstep::transport
