#include "transport/wired_transfer.h"

#include <algorithm>
#include <cstring>

namespace lockstep::transport {

using std::chrono::nanoseconds;

WiredTransfer::WiredTransfer(WiredGroup& group, bool sends, Stream stream, int peer, const Header& header,
                             void* data, size_t bytes)
    : group_(group),
      sends_(sends),
      stream_(stream),
      peer_(peer),
      header_(header),
      data_(data),
      bytes_(bytes),
      lane_(group.lane(stream, peer, sends)) {
  const bool is_small = bytes <= Envelope::kSmallBytes;
  if (sends) envelope_ = {.header = header, .bytes = bytes};
  if (sends && is_small && bytes > 0) std::memcpy(envelope_.small, data, bytes);
  const std::lock_guard lock(lane_.mutex);
  first_ = group.post(*this, group.envelopes(stream), &envelope_, sizeof(envelope_));
  if (!is_small) second_ = group.post(*this, group.payloads(stream, header, bytes), data, bytes);
  lane_.transfers.push_back(this);
}

WiredTransfer::~WiredTransfer() {
  const std::lock_guard lock(lane_.mutex);
  std::erase(lane_.transfers, this);
  ++lane_.ended;
}

bool WiredTransfer::is_expected() {
  if (lane_.error) std::rethrow_exception(lane_.error);
  for (auto* const transfer : lane_.transfers) {
    if (!transfer->is_compared_) {
      // It is there if a later one is; the engine may need a moment to say so.
      if (!group_.look(*transfer->first_, peer_, std::chrono::milliseconds(1))) return false;
      const Envelope& envelope = transfer->envelope_;
      if (envelope.header != transfer->header_ || envelope.bytes != transfer->bytes_) {
        lane_.error = std::make_exception_ptr(
            Mismatch{.peer = peer_, .ours = transfer->header_, .theirs = envelope.header});
        std::rethrow_exception(lane_.error);
      }
      if (!transfer->second_ && transfer->bytes_ > 0)
        std::memcpy(transfer->data_, envelope.small, transfer->bytes_);
      transfer->is_compared_ = true;
    }
    if (transfer == this) break;
  }
  return true;
}

bool WiredTransfer::is_over(nanoseconds patience) {
  if (!group_.look(*first_, peer_, patience)) return false;
  if (!sends_) {
    const std::lock_guard lock(lane_.mutex);
    if (!is_compared_ && !is_expected()) return false;
  }
  return !second_ || group_.look(*second_, peer_, patience);
}

bool WiredTransfer::test() {
  if (is_over(nanoseconds(0))) return true;
  if (group_.control_.has_failed()) throw Interrupted{};
  return false;
}

void WiredTransfer::wait(const Limit& limit) {
  group_.await(*this, limit);
}

uint64_t WiredTransfer::moved() {
  return group_.moved_for(*this);
}

bool WiredTransfer::needs_company() {
  return group_.wire_.moves_in_calls_only() && !is_over(nanoseconds(0));
}

}  // namespace lockstep::transport
