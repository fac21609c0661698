#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/unique_fd.h"
#include "transport/connection.h"
#include "transport/gatherings.h"
#include "transport/io.h"

namespace lockstep::transport {

/// A rank, as rank 0 met it.
struct Member {
  launch::UniqueFd socket;
  launch::UniqueFd process;  ///< Its pidfd, if it is on this host: a child of it may hold its socket open.
  std::string who;           ///< "rank 3 (pid 4711)"
};

/// The middle of the star, in a thread of rank 0's process: passes on what ranks gather, tells all of the
/// first failure, and takes the end of a connection without a goodbye for its rank's death.
class StarServer {
 public:
  /// `members` in the order of ranks, rank 0's own client among them.
  explicit StarServer(std::vector<Member> members);
  StarServer(const StarServer&) = delete;
  StarServer& operator=(const StarServer&) = delete;
  /// Tells those who are still there that it goes; takes a second at most.
  ~StarServer();

  /// Waits until every rank has said goodbye or is dead; false at the deadline.
  bool wait_until_empty(Deadline deadline);

 private:
  struct Seat {
    Connection connection;
    launch::UniqueFd process;
    std::string who;
    bool here = true;  ///< Neither left nor dead.
  };

  void run();
  void serve_until_stopped();
  std::vector<pollfd> what_to_watch() const;
  void listen_to(int rank, bool process_ended);
  void handle(int rank, const Message& message);
  void relay(int rank, const Gather& gather);
  void say_goodbye(int rank);
  void lose(int rank, const std::string& why);
  void fail(const Failure& failure);
  void dismiss(Seat& seat);
  void broadcast(const Message& message);
  void flush();
  void finish();

  // The thread's own.
  std::vector<Seat> seats_;
  Gatherings gatherings_;
  bool failed_ = false;

  Waker waker_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable emptied_;
  std::size_t here_count_;
  std::thread thread_;
};

}  // namespace lockstep::transport
