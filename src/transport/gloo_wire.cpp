#include "transport/gloo_wire.h"

#include <fmt/format.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/error.h"
#include "transport/bytes.h"
#include "transport/quiet_thread.h"
#include "transport/without_sigpipe.h"

namespace lockstep::transport {

namespace {

/// Gloo's own timeouts close all connections of the job: they must never come.
constexpr std::chrono::milliseconds kNever = std::chrono::hours(24 * 365);

class GlooPost final : public Wire::Post {
 public:
  GlooPost(Alarm& alarm, std::unique_ptr<gloo::transport::UnboundBuffer> buffer, int peer, uint64_t channel,
           bool sends)
      : alarm_(alarm), buffer_(std::move(buffer)), sends_(sends) {
    const WithoutSigpipe guard;  // a receive writes too: Gloo lets the sender begin
    for (size_t begin = 0; begin < buffer_->size; begin += Wire::kSegmentBytes, ++segments_) {
      const size_t bytes = std::min(Wire::kSegmentBytes, buffer_->size - begin);
      sends ? buffer_->send(peer, channel, begin, bytes) : buffer_->recv(peer, channel, begin, bytes);
    }
  }

  bool wait_for(std::chrono::nanoseconds patience) override {
    if (over_ >= segments_) return true;
    // One wait at a time: calling one off would end another one instead, and this one never.
    const std::unique_lock lock(waiting_, patience);
    if (!lock) return over_ >= segments_;
    // Gloo can neither look nor wait for a while; but a wait can be called off, and nothing is lost by that.
    // A look takes a moment, too: the alarm shall not ring before the wait begins.
    constexpr std::chrono::nanoseconds kGlance = std::chrono::microseconds(200);
    const Alarm::Setting setting(alarm_, Alarm::Clock::now() + std::max(patience, kGlance),
                                 [this] { sends_ ? buffer_->abortWaitSend() : buffer_->abortWaitRecv(); });
    try {
      while (over_ < segments_) {
        if (!(sends_ ? buffer_->waitSend(kNever) : buffer_->waitRecv(kNever))) break;
        ++over_;
      }
    } catch (const std::exception& error) {
      throw Wire::Broken{error.what()};
    }
    return over_ >= segments_;
  }

  size_t moved() const override { return over_; }

 private:
  Alarm& alarm_;
  const std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  const bool sends_;
  std::timed_mutex waiting_;
  size_t segments_ = 0;
  std::atomic<size_t> over_ = 0;
};

/// Gloo's thread, like our own, leaves signals to those of the program.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& address) {
  std::shared_ptr<gloo::transport::Device> device;
  std::exception_ptr error;
  start_quiet_thread("lockstep-gloo", [&] {
    // Gloo's thread inherits this. As a batch thread it does not interrupt the one that posts messages;
    // without it all-reduces of 64 KiB took 8 ms instead of 0.13. Presumed cause: it spins for the lock of a
    // pair.
    const sched_param none = {};
    static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &none));
    try {
      gloo::transport::tcp::attr attr;
      attr.hostname = address;
      device = gloo::transport::tcp::CreateDevice(attr);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return device;
}

/// Descriptors of this process. Gloo's headers do not give those of its pairs.
std::set<int> tcp_connections() {
  std::set<int> found;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", gone)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) found.insert(descriptor);
  }
  return found;
}

/// The `index`-th of the addresses of a rank.
std::vector<char> address_at(std::string_view addresses, int index) {
  for (;; --index) {
    if (addresses.size() < 2) break;
    const auto size = get_number<uint16_t>(addresses);
    addresses.remove_prefix(2);
    if (addresses.size() < size) break;
    if (index == 0) return {addresses.begin(), addresses.begin() + size};
    addresses.remove_prefix(size);
  }
  throw Error("gloo: a rank's addresses are cut short");
}

}  // namespace

GlooWire::GlooWire(int rank, int world, const std::string& address, std::chrono::milliseconds patience)
    : rank_(rank), world_(world), connections_(tcp_connections()) {
  try {
    device_ = make_device(address);
    context_ = device_->createContext(rank, world);
    context_->setTimeout(patience / 5 +
                         std::chrono::milliseconds(1));  // Gloo connects for five times as long
    for (int peer = 0; peer < world; ++peer) {
      if (peer != rank) context_->createPair(peer);
    }
  } catch (const std::exception& error) {
    throw Error(fmt::format("gloo on rank {}: cannot listen on {}: {}", rank, address, error.what()));
  }
}

GlooWire::~GlooWire() = default;

void GlooWire::flush() {
  // Gloo is done with data that the kernel has. But a connection that is closed loses it as soon as the peer
  // says anything, and the peer may ask a question any time.
  constexpr auto kIdle = std::chrono::seconds(5);
  auto moved_at = std::chrono::steady_clock::now();
  for (int64_t last = -1; std::chrono::steady_clock::now() - moved_at < kIdle;) {
    int64_t left = 0;
    for (const int connection : connections_) {
      int bytes = 0;
      if (ioctl(connection, SIOCOUTQ, &bytes) == 0) left += bytes;
    }
    if (left == 0) return;
    if (left != last) moved_at = std::chrono::steady_clock::now();
    last = left;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string GlooWire::addresses() const {
  std::string text;
  for (int peer = 0; peer < world_; ++peer) {
    const std::vector<char> bytes =
        peer == rank_ ? std::vector<char>() : context_->getPair(peer)->address().bytes();
    put_number(text, static_cast<uint16_t>(bytes.size()));
    text.append(bytes.begin(), bytes.end());
  }
  return text;
}

void GlooWire::connect(const std::vector<std::string>& addresses) {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    try {
      context_->getPair(peer)->connect(address_at(addresses[static_cast<size_t>(peer)], rank_));
    } catch (const std::exception& error) {
      throw PeerError(
          fmt::format(
              "gloo on rank {}: no connection to rank {}: {}; hint: can the hosts reach each other? If "
              "so, that rank ended, or a stranger took its connection; start the job again",
              rank_, peer, error.what()),
          peer);
    }
  }
  const std::set<int> others = std::exchange(connections_, tcp_connections());
  std::erase_if(connections_, [&](int connection) { return others.contains(connection); });
}

std::unique_ptr<Wire::Post> GlooWire::post(int peer, uint64_t channel, void* data, size_t bytes, bool sends) {
  try {
    return std::make_unique<GlooPost>(alarm_, context_->createUnboundBuffer(data, bytes), peer, channel,
                                      sends);
  } catch (const std::exception& error) {
    throw Broken{error.what()};
  }
}

}  // namespace lockstep::transport
