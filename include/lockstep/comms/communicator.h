#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comms/buffer.h"
#include "lockstep/comms/types.h"
#include "lockstep/comms/work.h"

namespace lockstep {

namespace comms {
class Group;
}

/// How one call differs from the usual.
struct CallOptions {
  /// How long to wait while nothing moves; 0: the communicator's own. A call may take longer as long as data
  /// moves: for a message, any message between the same two ranks (`shm`: in the same direction); for a
  /// collective, anything on this rank or on the one that it waits for. `gloo` and `mpi` see steps of 256
  /// KiB.
  std::chrono::milliseconds timeout{0};
  /// A name that `lockstep plan` knows; "": chosen by engine and size. The same on all ranks.
  std::string_view algorithm = "";
};

/// A group of ranks that act together. A cheap handle: copies speak of the same group.
///
/// All ranks of a group must make the same calls in the same order. If they do not (another collective,
/// count, type, operation, root or algorithm), all of them throw PeerError, in the same words, and no data is
/// wrong. A call throws TimeoutError if nothing moves for so long, PeerError if a rank died or could not go
/// on; then every other rank throws the same, and all communicators of the job are dead. What is in the
/// buffers of a call that threw is undefined.
///
/// Bad arguments are a UsageError, before anything moves: elements at a null address, negative counts, counts
/// or types that do not belong together, buffers that overlap. Counts may be 0. Two buffers of a call may be
/// the same, or the smaller one this rank's own part of the larger one, but for all_to_all.
///
/// Calls may come from any thread; they run one after the other, in call order, split() too. Blocking calls
/// run on the caller's thread, the others (iall_reduce, ...) on a thread of the communicator.
///
/// A forked child may drop its copies, which does nothing there; whatever it calls is a UsageError.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<comms::Group> group) : group_(std::move(group)) {}

  int rank() const;
  int world_size() const;
  int get_next_rank() const { return (rank() + 1) % world_size(); }
  int get_prev_rank() const { return (rank() + world_size() - 1) % world_size(); }
  /// "threads", "shm", "gloo" or "mpi".
  std::string_view engine() const;

  /// Reduces `data` over all ranks, in place; every rank ends with the same bits.
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::kSum, const CallOptions& options = {});
  /// The same into `output`, of the same count; `input` stays as it is.
  void all_reduce(Buffer input, Buffer output, ReduceOp op = ReduceOp::kSum, const CallOptions& options = {});
  /// The same for the elements of several buffers of one type, as if they lay one behind the other: one call
  /// instead of many, and where ranks share memory nothing is copied together. All ranks give equal counts.
  void all_reduce_coalesced(std::vector<Buffer> parts, ReduceOp op = ReduceOp::kSum,
                            const CallOptions& options = {});
  /// Every rank ends with what the root has.
  void broadcast(Buffer data, int root = 0, const CallOptions& options = {});
  /// The root ends with the reduction; what the others hold is undefined afterwards.
  void reduce(Buffer data, int root = 0, ReduceOp op = ReduceOp::kSum, const CallOptions& options = {});
  /// Rank k gets the k-th part of the root's `input`, which has world_size times as many elements; others
  /// give none, `Buffer()`.
  void scatter(Buffer input, Buffer output, int root = 0, const CallOptions& options = {});
  /// The root gets everybody's `input`, in rank order; others give no `output`, `Buffer()`.
  void gather(Buffer input, Buffer output, int root = 0, const CallOptions& options = {});
  /// Everybody gets everybody's `input`, in rank order.
  void all_gather(Buffer input, Buffer output, const CallOptions& options = {});
  /// Rank k gets part k of the reduction of `input`, cut as evenly as possible, longer parts first. `input`
  /// stays, but for `output` if that is a part of it.
  void reduce_scatter(Buffer input, Buffer output, ReduceOp op = ReduceOp::kSum,
                      const CallOptions& options = {});
  /// Part k of `input` goes to rank k; part k of `output` comes from rank k.
  void all_to_all(Buffer input, Buffer output, const CallOptions& options = {});
  /// No rank leaves before all have come.
  void barrier(const CallOptions& options = {});

  Work iall_reduce(Buffer data, ReduceOp op = ReduceOp::kSum, const CallOptions& options = {});
  Work iall_reduce_coalesced(std::vector<Buffer> parts, ReduceOp op = ReduceOp::kSum,
                             const CallOptions& options = {});
  Work ibroadcast(Buffer data, int root = 0, const CallOptions& options = {});
  Work ireduce(Buffer data, int root = 0, ReduceOp op = ReduceOp::kSum, const CallOptions& options = {});
  Work iscatter(Buffer input, Buffer output, int root = 0, const CallOptions& options = {});
  Work igather(Buffer input, Buffer output, int root = 0, const CallOptions& options = {});
  Work iall_gather(Buffer input, Buffer output, const CallOptions& options = {});
  Work ireduce_scatter(Buffer input, Buffer output, ReduceOp op = ReduceOp::kSum,
                       const CallOptions& options = {});
  Work iall_to_all(Buffer input, Buffer output, const CallOptions& options = {});
  Work ibarrier(const CallOptions& options = {});

  /// One message to another rank. Messages between two ranks keep their order; tag, count and type must be
  /// the receiver's. A small one may be sent before the receiver has asked for it.
  void send(Buffer data, int to, int tag = 0, const CallOptions& options = {});
  void recv(Buffer data, int from, int tag = 0, const CallOptions& options = {});
  Work isend(Buffer data, int to, int tag = 0, const CallOptions& options = {});
  Work irecv(Buffer data, int from, int tag = 0, const CallOptions& options = {});

  /// A group of those that give the same colour, in the order of their keys, then ranks; none for a negative
  /// colour. All ranks of this group must call it. Threads may split different groups at the same time.
  std::optional<Communicator> split(int colour, int key = 0);

  /// Memory that collectives use without a copy where the engine shares memory; freed with the last
  /// reference. For any type of element.
  std::shared_ptr<void> allocate(std::size_t bytes);

  /// Ends the job's communication: every rank that waits, or calls anything later, throws `reason`. From any
  /// thread.
  void abort(const std::string& reason = "abort() was called");

 private:
  std::shared_ptr<comms::Group> group_;
};

}  // namespace lockstep
