#include "cli/bench_native.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "lockstep/error.h"

#ifdef LOCKSTEP_HAS_GLOO
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#endif
#ifdef LOCKSTEP_HAS_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

namespace lockstep::cli {

namespace {

#ifdef LOCKSTEP_HAS_GLOO
/// A full mesh over the loopback address; addresses are exchanged by the communicator.
struct GlooMesh final : gloo::Context {
  explicit GlooMesh(Communicator& comm) : gloo::Context(comm.rank(), comm.world_size()) {
    std::signal(SIGPIPE, SIG_IGN);  // a rank that ended is an error of the next call
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(std::chrono::seconds(30));
    std::vector<uint8_t> own;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      for (const char byte : transportContext_->createPair(peer)->address().bytes())
        own.push_back(static_cast<uint8_t>(byte));
    }
    std::vector<uint8_t> all(own.size() * static_cast<size_t>(size));
    comm.all_gather(own, all);
    const auto bytes = static_cast<int64_t>(own.size()) / std::max(1, size - 1);  // of an address
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const auto place = all.begin() + bytes * ((size - 1) * peer + (rank < peer ? rank : rank - 1));
      transportContext_->getPair(peer)->connect({place, place + bytes});
    }
  }
};

NativeSum make_gloo_sum(Communicator& comm) {
  return [mesh = std::make_shared<GlooMesh>(comm)](float* data, int64_t count) {
    gloo::AllreduceOptions options(mesh);
    options.setOutput(data, static_cast<size_t>(count));
    options.setReduceFunction([](void* sum, const void* left, const void* right, size_t elements) {
      auto* const to = static_cast<float*>(sum);
      const auto* const a = static_cast<const float*>(left);
      const auto* const b = static_cast<const float*>(right);
      for (size_t i = 0; i < elements; ++i) to[i] = a[i] + b[i];
    });
    options.setTimeout(std::chrono::minutes(10));
    gloo::allreduce(options);
  };
}
#endif

#ifdef LOCKSTEP_HAS_MPI
NativeSum make_mpi_sum() {
  MPI_Comm own = MPI_COMM_NULL;  // lives as long as the process; its errors end the job
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  return [own](float* data, int64_t count) {
    constexpr int64_t kMost = int64_t{1} << 30;  // MPI counts in int
    for (int64_t begin = 0; begin < count; begin += kMost) {
      MPI_Allreduce(MPI_IN_PLACE, data + begin, static_cast<int>(std::min(kMost, count - begin)), MPI_FLOAT,
                    MPI_SUM, own);
    }
  };
}
#endif

}  // namespace

NativeSum make_native_sum(Communicator& comm) {
#ifdef LOCKSTEP_HAS_GLOO
  if (comm.engine() == "gloo") return make_gloo_sum(comm);
#endif
#ifdef LOCKSTEP_HAS_MPI
  if (comm.engine() == "mpi") return make_mpi_sum();
#endif
  throw UsageError(fmt::format(
      "algorithm native: engine {} has none of its own; hint: native is for gloo and mpi", comm.engine()));
}

}  // namespace lockstep::cli
