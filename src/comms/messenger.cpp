#include "comms/messenger.h"

#include "lockstep/error.h"

namespace lockstep::comms {

Messenger::~Messenger() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Messenger::accompany(std::shared_ptr<Message> message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void Messenger::forget(const std::shared_ptr<Message>& message) {
  std::unique_lock lock(mutex_);
  std::erase(messages_, message);
  changed_.wait(lock, [&] { return current_ != message; });
}

void Messenger::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !messages_.empty(); });
    if (messages_.empty()) return;
    current_ = std::move(messages_.front());
    messages_.pop_front();
    lock.unlock();
    try {
      guard_(current_->header, [&] { see_through(*current_); });
    } catch (...) {
      // It is everybody's failure now: whoever waits, or calls later, throws it.
    }
    lock.lock();
    current_.reset();
    changed_.notify_all();
  }
}

void Messenger::see_through(const Message& message) {
  // In slices: whether somebody else watches the time may change meanwhile. Waiting for one message moves
  // all.
  const transport::Limit slice = {
      .timeout = std::chrono::milliseconds(100), .failed = message.limit.failed, .in_background = true};
  for (std::chrono::nanoseconds alone{0};;) {
    try {
      return message.transfer->wait(slice);
    } catch (const TimeoutError&) {
      alone = message.is_held ? std::chrono::nanoseconds(0) : alone + slice.timeout;
      if (alone >= message.limit.timeout) throw;
    }
  }
}

}  // namespace lockstep::comms
