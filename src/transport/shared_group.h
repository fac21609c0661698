#pragma once

#include <unistd.h>

#include <array>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "transport/arena.h"
#include "transport/fifo.h"
#include "transport/transport.h"

namespace lockstep::transport {

/// How a group on shared memory behaves, beyond what is needed: tests make life harder.
struct GroupOptions {
  bool crowded = false;                 ///< There are more ranks than cores.
  bool rendezvous = false;              ///< A send is over only when it has been received.
  std::optional<uint64_t> delays = {};  ///< Seed of random delays; none without.
  uint32_t first_run = 0;               ///< Where runs are counted from; flags wrap around at 2^30.
};

/// A group of ranks that reach each other's memory: processes that have mapped each other's arenas (`shm`),
/// or threads of one process (`threads`). The protocol is the same, so that what is proved of threads holds
/// for processes.
///
/// Every rank has a *block* in its own arena, with what it shows to the others:
///   two slots, used by turns, one for each run: flag, header, where its data is, and an inbox for small
///   payloads; a bell that others ring when a fifo from or to this rank has moved; a fifo to every other rank
///   for each stream; two bounce buffers, used by turns.
/// A rank begins run r only when all others have begun run r - 1: then they are done with run r - 2, whose
/// slot and bounce buffer it uses again.
class SharedGroup final : public Transport, public OneSided {
 public:
  /// Bytes of a block, to be allocated by each rank in its own arena.
  static size_t block_bytes(int world);

  /// A block is made ready in `memory`, before any peer looks at it.
  /// The result is 0 once the groups of all members are gone: nobody looks at the block from then on.
  static const std::atomic<uint32_t>& prepare(void* memory, int world, const GroupOptions& options);

  /// A member, as this process sees it.
  struct Member {
    std::byte* base;    ///< Of its arena.
    size_t span_bytes;  ///< Of its arena.
    size_t block;       ///< Offset of its block.
  };

  /// `has_left` tells whether a peer is done for good: nobody waits for it.
  SharedGroup(int rank, std::vector<Member> members, Arena& arena, const GroupOptions& options,
              std::function<bool(int peer)> has_left);
  ~SharedGroup() override;  ///< In a forked child, which has not mapped the others' memory, does nothing.

  std::unique_ptr<Transfer> send(Stream stream, int to, const Header& header, const void* data,
                                 size_t bytes) override;
  std::unique_ptr<Transfer> receive(Stream stream, int from, const Header& header, void* data,
                                    size_t bytes) override;
  void withdraw() override;
  OneSided* one_sided() override { return this; }

  void begin(const Header& header, const Limit& limit) override;
  void share(const void* data) override;
  void post() override;
  void settle() override;
  void wait(int peer, int flag, const Limit& limit) override;
  std::byte* data_of(int peer, size_t bytes) override;
  bool has_withdrawn(int peer) override;
  std::byte* inbox_of(int peer) override;
  std::byte* bounce_of(int peer) override;
  bool contains(const void* data, size_t bytes) const override { return arena_.contains(data, bytes); }
  int64_t offset_of(const void* data) const override { return static_cast<int64_t>(arena_.offset_of(data)); }
  std::byte* reach(int peer, int64_t offset, size_t bytes) override;
  void* allocate(size_t bytes) override { return arena_.allocate(bytes); }
  void deallocate(void* memory) override { arena_.deallocate(memory); }

 private:
  friend class FifoTransfer;

  struct alignas(128) Slot {
    Signal flag;  ///< Run times 4, plus how often it has been raised in it.
    Header header;
    int64_t data = -1;  ///< Offset in the owner's arena; -1 for none.
    std::byte inbox[kInboxBytes];
  };
  struct Block {
    Slot slots[2];
    alignas(128) Signal bell;
    std::atomic<uint32_t> withdrawn = 0;  ///< Its rank has given up: it may use its buffers for anything.
    std::atomic<uint32_t> users = 0;      ///< Members whose group is not gone.
    alignas(128) std::byte bounce[2][kBounceBytes];
    // Behind it: the fifos, stream by stream, peer by peer.
    Fifo* fifos() { return reinterpret_cast<Fifo*>(this + 1); }
  };

  /// One side of a fifo: transfers take their turns.
  struct End {
    Fifo* fifo = nullptr;
    uint64_t tickets = 0;
    uint64_t serving = 0;
  };

  Block& block_of(int rank) { return *blocks_[static_cast<size_t>(rank)]; }
  Slot& slot_of(int rank, uint32_t run) { return block_of(rank).slots[run % 2]; }
  End& end_of(Stream stream, int peer, bool sends) {
    return ends_[(static_cast<size_t>(stream) * static_cast<size_t>(world()) + static_cast<size_t>(peer)) *
                     2 +
                 (sends ? 1 : 0)];
  }
  /// Until the flag of a peer's slot for `run` is at least so high.
  void wait_for_flag(int peer, uint32_t run, uint32_t flag, const Limit& limit);
  /// Throws PeerError unless the flag can have this value while this rank is in `run`: a peer is at most
  /// there.
  static void check_flag(int peer, uint32_t run, uint32_t seen);
  /// Moves all pending transfers of a stream on; whether any moved.
  bool move_all(Stream stream);
  /// If the peer is in another collective than this rank, that is why nothing comes.
  void check_header_of(int peer);
  bool delayed(Stream stream);

  std::vector<Member> members_;
  std::vector<Block*> blocks_;
  Arena& arena_;
  const GroupOptions options_;
  const std::function<bool(int peer)> has_left_;
  const pid_t owner_ = getpid();

  uint32_t run_;
  uint32_t raised_ = 0;
  bool settled_ = true;
  Header header_;
  std::vector<uint32_t> entered_;  ///< By peer: the last run that it is known to have begun.

  std::vector<End> ends_;
  std::array<std::mutex, kStreams> mutexes_;
  std::array<std::deque<class FifoTransfer*>, kStreams> pending_;
  std::array<std::mt19937_64, kStreams> random_;  ///< Of each stream: its lock guards it.
};

}  // namespace lockstep::transport
