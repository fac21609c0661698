#include "transport/mpi_wire.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "transport/mpi_process.h"

namespace lockstep::transport {

namespace {

constexpr size_t kPieceBytes = size_t{1} << 30;

class MpiPost final : public Wire::Post {
 public:
  /// `start(offset, count)` starts a piece of the message.
  template <typename Start>
  MpiPost(size_t bytes, bool sends, const Start& start) : sends_(sends) {
    const auto lock = lock_mpi();
    for (size_t begin = 0; begin < bytes; begin += kPieceBytes) {
      requests_.push_back(MPI_REQUEST_NULL);
      check(start(begin, static_cast<int>(std::min(kPieceBytes, bytes - begin)), &requests_.back()));
    }
  }

  ~MpiPost() override {
    if (over_) return;
    const auto lock = lock_mpi();
    for (MPI_Request& request : requests_) {
      int over = 0;
      if (MPI_Test(&request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS || over != 0) continue;
      if (!sends_) MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  bool wait_for(std::chrono::nanoseconds patience) override {
    constexpr int kSpins = 100, kYields = 200;
    std::chrono::steady_clock::time_point deadline;
    for (int turn = 0;; ++turn) {
      if (test()) return true;
      if (patience.count() <= 0) return false;
      if (turn < kSpins) continue;
      const auto now = std::chrono::steady_clock::now();
      if (turn == kSpins) deadline = now + patience;
      if (now >= deadline) return false;
      if (turn < kYields) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
  }

 private:
  static void check(int code) {
    if (code != MPI_SUCCESS) throw Wire::Broken{mpi_error_text(code)};
  }

  bool test() {
    if (over_) return true;
    const auto lock = lock_mpi();
    int all = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE));
    over_ = all != 0;
    return over_;
  }

  const bool sends_;
  std::vector<MPI_Request> requests_;
  bool over_ = false;
};

}  // namespace

MpiWire::MpiWire(const std::atomic<bool>& failed) : failed_(failed) {
  const auto lock = lock_mpi();
  require_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
}

MpiWire::~MpiWire() {
  // The communicator stays: to free it is a collective call, and a rank may have died by now.
  if (!failed_.load(std::memory_order_acquire)) let_mpi_end();
}

std::unique_ptr<Wire::Post> MpiWire::send(int to, uint64_t channel, const void* data, size_t bytes) {
  return std::make_unique<MpiPost>(bytes, true, [&](size_t offset, int count, MPI_Request* request) {
    return MPI_Isend(static_cast<const std::byte*>(data) + offset, count, MPI_BYTE, to,
                     static_cast<int>(channel), communicator_, request);
  });
}

std::unique_ptr<Wire::Post> MpiWire::receive(int from, uint64_t channel, void* data, size_t bytes) {
  return std::make_unique<MpiPost>(bytes, false, [&](size_t offset, int count, MPI_Request* request) {
    return MPI_Irecv(static_cast<std::byte*>(data) + offset, count, MPI_BYTE, from, static_cast<int>(channel),
                     communicator_, request);
  });
}

bool MpiWire::native_sum(float* data, int64_t count, int members) {
  constexpr int64_t kMost = int64_t{1} << 30;  // MPI counts in int
  const auto lock = lock_mpi();
  int world = 0;
  require_mpi(MPI_Comm_size(communicator_, &world), "MPI_Comm_size");
  if (world != members) return false;
  for (int64_t begin = 0; begin < count; begin += kMost) {
    const int code =
        MPI_Allreduce(MPI_IN_PLACE, data + begin, static_cast<int>(std::min(kMost, count - begin)), MPI_FLOAT,
                      MPI_SUM, communicator_);
    if (code != MPI_SUCCESS) throw Broken{mpi_error_text(code)};
  }
  return true;
}

}  // namespace lockstep::transport
