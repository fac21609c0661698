#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>

#include "transport/wire.h"

namespace lockstep::transport {

/// MPI's point-to-point messages. A channel is a tag.
class MpiWire final : public Wire {
 public:
  /// `failed` says whether the job has failed, and outlives the wire.
  explicit MpiWire(const std::atomic<bool>& failed);
  ~MpiWire() override;

  std::unique_ptr<Post> send(int to, uint64_t channel, const void* data, size_t bytes) override;
  std::unique_ptr<Post> receive(int from, uint64_t channel, void* data, size_t bytes) override;
  bool moves_in_calls_only() const override { return true; }

 private:
  const std::atomic<bool>& failed_;
  MPI_Comm communicator_ = MPI_COMM_NULL;  ///< Apart from the program's own messages.
};

}  // namespace lockstep::transport
