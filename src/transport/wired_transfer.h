#pragma once

#include "transport/wired_group.h"

namespace lockstep::transport {

/// What goes before every payload, or carries it whole. Of one size, so that it can be received before
/// anything is known of the message.
struct Envelope {
  static constexpr size_t kSmallBytes = 480;

  Header header;
  uint64_t bytes = 0;  ///< Of the payload.
  std::byte small[kSmallBytes] = {};
};
static_assert(sizeof(Envelope) == 512);

/// A message that goes out: the envelope at once, the payload when it is released.
class WiredSend final : public Transfer {
 public:
  WiredSend(WiredGroup& group, Stream stream, int to, const Header& header, const void* data, size_t bytes);

  bool test() override;
  void wait(const Limit& limit) override;
  void release() override;

 private:
  WiredGroup& group_;
  const Stream stream_;
  const int to_;
  const void* const data_;
  Envelope envelope_;
  std::unique_lock<std::mutex> turn_;   ///< On its lane, until the payload is behind the envelope.
  std::unique_ptr<Wire::Post> first_;   ///< The envelope.
  std::unique_ptr<Wire::Post> second_;  ///< The payload, if it has its own message.
};

/// A message that comes in, after those that were asked for before it on its lane.
class WiredReceive final : public Transfer {
 public:
  WiredReceive(WiredGroup& group, Stream stream, int from, const Header& header, void* data, size_t bytes);
  ~WiredReceive() override;

  bool test() override;
  void wait(const Limit& limit) override;
  void welcome(const Limit& limit) override;
  /// An envelope must be looked at before its payload comes.
  bool needs_company() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Asks for the envelope, if that was not done yet.
  void ask();
  /// Moves it on as far as it goes, with patience if there is a limit; whether it is over. To `kWelcome`: no
  /// further than until the payload is asked for.
  enum class Aim : uint8_t { kWelcome, kEnd };
  bool advance(const Limit* limit, Aim aim);
  bool is_over(Wire::Post& post, const Limit* limit);
  /// Serves the lane's first receive, this or an earlier one. The lane is locked, and served by nobody.
  void serve_first(Lock& lock, const Limit* limit, Aim aim = Aim::kEnd);

  WiredGroup& group_;
  const Stream stream_;
  const int from_;
  const Header expected_;
  void* const data_;
  const size_t bytes_;
  WiredGroup::Lane& lane_;
  Envelope envelope_;
  std::unique_ptr<Wire::Post> first_;
  std::unique_ptr<Wire::Post> second_;
  bool done_ = false;  ///< By the lane's lock.
};

}  // namespace lockstep::transport
