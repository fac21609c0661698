#pragma once

#include <set>
#include <string>
#include <vector>

#include "transport/alarm.h"
#include "transport/wire.h"

namespace gloo::transport {
class Context;
class Device;
}  // namespace gloo::transport

namespace lockstep::transport {

/// Gloo's TCP pairs: one connection for every two ranks.
class GlooWire final : public Wire {
 public:
  /// Listens for every other rank, on `address` alone. Connecting takes `patience` at most for each of them.
  GlooWire(int rank, int world, const std::string& address, std::chrono::milliseconds patience);
  ~GlooWire() override;

  /// Where this rank listens for the others; to be given to their connect().
  std::string addresses() const;
  /// Connects to all others; `addresses` by rank. Throws PeerError.
  void connect(const std::vector<std::string>& addresses);

  std::unique_ptr<Post> send(int to, uint64_t channel, const void* data, size_t bytes) override {
    return post(to, channel, const_cast<void*>(data), bytes, true);
  }
  std::unique_ptr<Post> receive(int from, uint64_t channel, void* data, size_t bytes) override {
    return post(from, channel, data, bytes, false);
  }
  bool moves_in_calls_only() const override { return false; }
  void flush() override;

 private:
  std::unique_ptr<Post> post(int peer, uint64_t channel, void* data, size_t bytes, bool sends);

  const int rank_;
  const int world_;
  Alarm alarm_;
  std::set<int> connections_;  ///< Descriptors: of others until Gloo has connected, then Gloo's.
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
};

}  // namespace lockstep::transport
