#include "transport/mpi_wire.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "transport/mpi_process.h"

namespace lockstep::transport {

namespace {

int mpi_tag(uint64_t channel) {
  return static_cast<int>(channel & 0x7fffffffU);
}

/// Of sends, few segments are under way at once: MPI would send the beginnings of all before the rest of any,
/// and none would be seen to arrive for long.
class MpiPost final : public Wire::Post {
 public:
  using Start = std::function<int(size_t offset, int count, MPI_Request* request)>;

  MpiPost(size_t bytes, bool sends, Start start) : bytes_(bytes), sends_(sends), start_(std::move(start)) {
    const auto lock = lock_mpi();
    requests_.reserve((bytes + Wire::kSegmentBytes - 1) / Wire::kSegmentBytes);
    start_segments();
    if (!is_started()) waiting().push_back(this);
  }

  ~MpiPost() override {
    const auto lock = lock_mpi();
    std::erase(waiting(), this);
    for (size_t i = over_; i < requests_.size(); ++i) {
      MPI_Request& request = requests_[i];
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

  size_t moved() const override { return over_; }

 private:
  static void check(int code) {
    if (code != MPI_SUCCESS) throw Wire::Broken{mpi_error_text(code)};
  }

  /// Those with segments that are not yet started; any wait moves them all. By MPI's lock, as what follows.
  static std::vector<MpiPost*>& waiting() {
    static std::vector<MpiPost*> posts;
    return posts;
  }

  bool is_started() const { return requests_.size() * Wire::kSegmentBytes >= bytes_; }

  void start_segments() {
    constexpr size_t kAtOnce = 4;
    while (!is_started() && (!sends_ || requests_.size() < over_ + kAtOnce)) {
      const size_t begin = requests_.size() * Wire::kSegmentBytes;
      requests_.push_back(MPI_REQUEST_NULL);
      check(
          start_(begin, static_cast<int>(std::min(Wire::kSegmentBytes, bytes_ - begin)), &requests_.back()));
    }
  }

  void advance() {
    while (over_ < requests_.size()) {
      int over = 0;
      check(MPI_Test(&requests_[over_], &over, MPI_STATUS_IGNORE));
      if (over == 0) return;
      ++over_;
      start_segments();
    }
  }

  bool test() {
    const auto lock = lock_mpi();
    for (auto* const post : waiting()) {
      try {
        post->advance();
      } catch (const Wire::Broken&) {
        // Whoever waits for it finds out.
      }
    }
    std::erase_if(waiting(), [](const MpiPost* post) { return post->is_started(); });
    advance();
    return over_ == requests_.size();
  }

  const size_t bytes_;
  const bool sends_;
  const Start start_;
  std::vector<MPI_Request> requests_;
  std::atomic<size_t> over_ = 0;  ///< How many of the first.
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
  return std::make_unique<MpiPost>(bytes, true, [=, this](size_t offset, int count, MPI_Request* request) {
    return MPI_Isend(static_cast<const std::byte*>(data) + offset, count, MPI_BYTE, to, mpi_tag(channel),
                     communicator_, request);
  });
}

std::unique_ptr<Wire::Post> MpiWire::receive(int from, uint64_t channel, void* data, size_t bytes) {
  return std::make_unique<MpiPost>(bytes, false, [=, this](size_t offset, int count, MPI_Request* request) {
    return MPI_Irecv(static_cast<std::byte*>(data) + offset, count, MPI_BYTE, from, mpi_tag(channel),
                     communicator_, request);
  });
}

}  // namespace lockstep::transport
