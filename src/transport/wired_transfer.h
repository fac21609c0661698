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

/// A message, out or in. The engine has all of it from the beginning.
class WiredTransfer final : public Transfer {
 public:
  WiredTransfer(WiredGroup& group, bool sends, Stream stream, int peer, const Header& header, void* data,
                size_t bytes);
  ~WiredTransfer() override;

  bool test() override;
  void wait(const Limit& limit) override;
  uint64_t moved() override;
  bool needs_company() override;

 private:
  friend class WiredGroup;

  /// As Post::wait_for(), but throws as wait() does.
  bool is_over(std::chrono::nanoseconds patience);
  /// Compares what came on the lane up to this message with what was expected, in order. False if an earlier
  /// envelope has not come. The lane is locked.
  bool is_expected();
  /// Whether the engine is done with it. Throws Wire::Broken.
  bool is_gone(std::chrono::nanoseconds patience) {
    return first_->wait_for(patience) && (!second_ || second_->wait_for(patience));
  }
  /// Segments that were seen to move.
  uint64_t count() { return first_->moved() + (second_ ? second_->moved() : 0); }

  WiredGroup& group_;
  const bool sends_;
  const Stream stream_;
  const int peer_;
  const Header header_;
  void* const data_;
  const size_t bytes_;
  WiredGroup::Lane& lane_;
  Envelope envelope_;
  std::unique_ptr<Wire::Post> first_;   ///< The envelope.
  std::unique_ptr<Wire::Post> second_;  ///< The payload, if it does not fit.
  bool is_compared_ = false;            ///< By the lane's lock.
};

}  // namespace lockstep::transport
