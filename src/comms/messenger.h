#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "transport/transport.h"

namespace lockstep::comms {

/// A message between two ranks, on its way.
struct Message {
  std::unique_ptr<transport::Transfer> transfer;
  transport::Header header;
  transport::Limit limit;
  std::atomic<bool> is_held = true;  ///< Somebody may still wait for it, with a timeout of its own.
  // Of the messenger.
  uint64_t moved = 0;
  std::chrono::steady_clock::time_point moved_at = {};
};

/// Moves messages on while their caller does something else; sleeps while there are none. Several threads may
/// wait for one message.
class Messenger {
 public:
  /// Runs what may throw, and makes what it throws everybody's failure.
  using Guard = std::function<void(const transport::Header& header, const std::function<void()>& act)>;

  explicit Messenger(Guard guard) : guard_(std::move(guard)) {}
  /// Sees through what is left: each message to its end, its timeout, or the job's failure.
  ~Messenger();

  void accompany(std::shared_ptr<Message> message);
  /// After the job's failure: returns when the message is not moved from here any more.
  void forget(const std::shared_ptr<Message>& message);

 private:
  void run();
  /// Waits a while for the message, which moves all others too. Whether it is over.
  static bool visit(Message& message);

  const Guard guard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Message>> messages_;
  std::shared_ptr<Message> current_;  ///< That is being visited.
  bool stopping_ = false;
  std::thread thread_;  ///< Started when first needed.
};

}  // namespace lockstep::comms
