#include "transport/gloo_wire.h"

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <exception>

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
  GlooPost(Alarm& alarm, std::unique_ptr<gloo::transport::UnboundBuffer> buffer, bool sends)
      : alarm_(alarm), buffer_(std::move(buffer)), sends_(sends) {}

  bool wait_for(std::chrono::nanoseconds patience) override {
    if (over_) return true;
    // Gloo can neither look nor wait for a while; but a wait can be called off, and nothing is lost by that.
    const Alarm::Setting setting(alarm_, Alarm::Clock::now() + patience,
                                 [this] { sends_ ? buffer_->abortWaitSend() : buffer_->abortWaitRecv(); });
    try {
      over_ = sends_ ? buffer_->waitSend(kNever) : buffer_->waitRecv(kNever);
    } catch (const std::exception& error) {
      throw Wire::Broken{error.what()};
    }
    return over_;
  }

 private:
  Alarm& alarm_;
  const std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  const bool sends_;
  bool over_ = false;
};

/// What Gloo's own collectives want to be given.
struct OwnContext final : gloo::Context {
  OwnContext(int own_rank, int world, std::shared_ptr<gloo::transport::Device> device,
             std::shared_ptr<gloo::transport::Context> pairs)
      : gloo::Context(own_rank, world) {
    device_ = std::move(device);
    transportContext_ = std::move(pairs);
  }
};

/// Gloo's thread, like our own, leaves signals to those of the program.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& address) {
  std::shared_ptr<gloo::transport::Device> device;
  std::exception_ptr error;
  start_quiet_thread("lockstep-gloo", [&] {
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
    : rank_(rank), world_(world) {
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
}

std::unique_ptr<Wire::Post> GlooWire::send(int to, uint64_t channel, const void* data, size_t bytes) {
  auto buffer = context_->createUnboundBuffer(const_cast<void*>(data), bytes);
  try {
    const WithoutSigpipe guard;
    buffer->send(to, channel);
  } catch (const std::exception& error) {
    throw Broken{error.what()};
  }
  return std::make_unique<GlooPost>(alarm_, std::move(buffer), true);
}

std::unique_ptr<Wire::Post> GlooWire::receive(int from, uint64_t channel, void* data, size_t bytes) {
  auto buffer = context_->createUnboundBuffer(data, bytes);
  try {
    const WithoutSigpipe guard;  // Gloo tells the sender that it may begin
    buffer->recv(from, channel);
  } catch (const std::exception& error) {
    throw Broken{error.what()};
  }
  return std::make_unique<GlooPost>(alarm_, std::move(buffer), false);
}

bool GlooWire::native_sum(float* data, int64_t count, int members) {
  if (members != world_) return false;
  if (!collectives_) collectives_ = std::make_shared<OwnContext>(rank_, world_, device_, context_);
  gloo::AllreduceOptions options(collectives_);
  options.setOutput(data, static_cast<size_t>(count));
  options.setReduceFunction([](void* sum, const void* left, const void* right, size_t elements) {
    auto* const to = static_cast<float*>(sum);
    const auto* const a = static_cast<const float*>(left);
    const auto* const b = static_cast<const float*>(right);
    for (size_t i = 0; i < elements; ++i) to[i] = a[i] + b[i];
  });
  options.setTimeout(kNever);
  try {
    const WithoutSigpipe guard;
    gloo::allreduce(options);
  } catch (const std::exception& error) {
    throw Broken{error.what()};
  }
  return true;
}

}  // namespace lockstep::transport
