#include "transport/wired_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/error.h"

namespace lockstep::transport {

WiredSend::WiredSend(WiredGroup& group, Stream stream, int to, const Header& header, const void* data,
                     size_t bytes)
    : group_(group), stream_(stream), to_(to), data_(data), envelope_{.header = header, .bytes = bytes} {
  if (bytes <= Envelope::kSmallBytes && bytes > 0) std::memcpy(envelope_.small, data, bytes);
  turn_ = std::unique_lock(group_.lane(stream, to).sending);
  first_ = group_.post_send(stream, to, &envelope_, sizeof(envelope_));
}

void WiredSend::release() {
  if (!turn_.owns_lock()) return;
  if (envelope_.bytes > Envelope::kSmallBytes) {
    second_ = group_.post_send(stream_, to_, data_, envelope_.bytes);
  }
  turn_.unlock();
}

bool WiredSend::test() {
  release();
  return group_.look_once(*first_, to_) && (!second_ || group_.look_once(*second_, to_));
}

void WiredSend::wait(const Limit& limit) {
  release();
  const WiredGroup::Awaited awaited{stream_, to_, envelope_.header, "receive"};
  group_.await(*first_, awaited, limit);
  if (second_) group_.await(*second_, awaited, limit);
}

WiredReceive::WiredReceive(WiredGroup& group, Stream stream, int from, const Header& header, void* data,
                           size_t bytes)
    : group_(group),
      stream_(stream),
      from_(from),
      expected_(header),
      data_(data),
      bytes_(bytes),
      lane_(group.lane(stream, from)) {
  const std::lock_guard lock(lane_.mutex);
  if (lane_.receives.empty()) ask();
  lane_.receives.push_back(this);
}

WiredReceive::~WiredReceive() {
  Lock lock(lane_.mutex);
  if (done_) return;
  // Another thread may be at it: the job has failed, which that thread notices soon.
  lane_.moved.wait(lock, [&] { return !lane_.served || lane_.receives.front() != this; });
  std::erase(lane_.receives, this);
}

bool WiredReceive::needs_company() const {
  const std::lock_guard lock(lane_.mutex);
  return !done_ && group_.has_quiet_waits();
}

bool WiredReceive::test() {
  Lock lock(lane_.mutex);
  while (!done_ && !lane_.served && !lane_.error) {
    WiredReceive* const first = lane_.receives.front();
    serve_first(lock, nullptr);
    if (!first->done_) break;
  }
  if (!done_ && lane_.error) std::rethrow_exception(lane_.error);
  return done_;
}

void WiredReceive::welcome(const Limit& limit) {
  Lock lock(lane_.mutex);
  if (!done_ && !lane_.served && !lane_.error && lane_.receives.front() == this) {
    serve_first(lock, &limit, Aim::kWelcome);
  }
}

void WiredReceive::wait(const Limit& limit) {
  const auto began = Control::Clock::now();
  Lock lock(lane_.mutex);
  while (!done_) {
    if (lane_.error) std::rethrow_exception(lane_.error);
    if (!lane_.served) {
      serve_first(lock, &limit);
      continue;
    }
    lane_.moved.wait_for(lock, std::chrono::milliseconds(20));
    if (limit.failed->load(std::memory_order_acquire)) throw Interrupted{};
    if (!done_ && Control::Clock::now() - began >= limit.timeout) {
      throw TimeoutError(fmt::format("rank {} did not send", from_), from_);
    }
  }
}

void WiredReceive::serve_first(Lock& lock, const Limit* limit, Aim aim) {
  WiredReceive* const first = lane_.receives.front();
  lane_.served = true;
  lock.unlock();
  bool over = false;
  std::exception_ptr error, too_late;
  try {
    over = first->advance(limit, aim);
  } catch (const TimeoutError&) {
    too_late = std::current_exception();  // for this thread: another may have more patience
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  lane_.served = false;
  try {
    if (over) {
      first->done_ = true;
      lane_.receives.pop_front();
      if (!lane_.receives.empty()) lane_.receives.front()->ask();
    }
  } catch (...) {
    error = std::current_exception();
  }
  if (error) lane_.error = error;
  lane_.moved.notify_all();
  if (too_late) std::rethrow_exception(too_late);
}

void WiredReceive::ask() {
  if (!first_) first_ = group_.post_receive(stream_, from_, &envelope_, sizeof(envelope_));
}

bool WiredReceive::advance(const Limit* limit, Aim aim) {
  ask();
  if (!is_over(*first_, limit)) return false;
  if (envelope_.header != expected_ || envelope_.bytes != bytes_) {
    throw Mismatch{.peer = from_, .ours = expected_, .theirs = envelope_.header};
  }
  if (bytes_ <= Envelope::kSmallBytes) {
    if (bytes_ > 0) std::memcpy(data_, envelope_.small, bytes_);
    return true;
  }
  if (!second_) second_ = group_.post_receive(stream_, from_, data_, bytes_);
  return aim == Aim::kEnd && is_over(*second_, limit);
}

bool WiredReceive::is_over(Wire::Post& post, const Limit* limit) {
  if (limit == nullptr) return group_.look_once(post, from_);
  group_.await(post, {stream_, from_, expected_, "send"}, *limit);
  return true;
}

}  // namespace lockstep::transport
