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
  message->moved_at = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void Messenger::forget(const std::shared_ptr<Message>& message) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return current_ != message; });
  std::erase(messages_, message);
}

void Messenger::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !messages_.empty(); });
    if (messages_.empty()) return;
    current_ = std::move(messages_.front());
    messages_.pop_front();
    lock.unlock();
    bool over = true;
    try {
      guard_(current_->header, [&] { over = visit(*current_); });
    } catch (...) {
      // It is everybody's failure now: whoever waits, or calls later, throws it.
    }
    lock.lock();
    if (!over) messages_.push_back(current_);
    current_.reset();
    changed_.notify_all();
  }
}

bool Messenger::visit(Message& message) {
  // Not long: another one may be due, and whether somebody else watches the time may change meanwhile.
  const transport::Limit slice = {
      .timeout = std::chrono::milliseconds(100), .failed = message.limit.failed, .in_background = true};
  try {
    message.transfer->wait(slice);
    return true;
  } catch (const TimeoutError&) {
    const auto now = std::chrono::steady_clock::now();
    const uint64_t moved = message.transfer->moved();
    if (message.is_held || moved != message.moved) {
      message.moved = moved;
      message.moved_at = now;
    }
    if (now - message.moved_at >= message.limit.timeout) throw;
    return false;
  }
}

}  // namespace lockstep::comms
