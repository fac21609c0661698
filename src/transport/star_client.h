#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "launch/unique_fd.h"
#include "transport/connection.h"
#include "transport/control.h"
#include "transport/io.h"
#include "transport/star_server.h"

namespace lockstep::transport {

/// A rank's end of its connection to rank 0: one socket, and a thread that sends what is queued and listens.
/// All functions may be called by any thread.
class StarClient {
 public:
  /// `rank_0` is the socket to rank 0, with its process and its name for failures.
  StarClient(int rank, int world, Member rank_0);
  StarClient(const StarClient&) = delete;
  StarClient& operator=(const StarClient&) = delete;
  ~StarClient();  ///< Without goodbye() before, the others take this rank for dead.

  // As in Control.
  std::vector<std::string> all_gather(const std::string& tag, const std::vector<int>& members,
                                      const std::string& blob, Deadline deadline);
  void fail(const Failure& failure);
  const std::atomic<bool>& failed_flag() const { return has_failed_; }
  std::optional<Failure> failure() const;
  bool has_left(int rank) const;

  /// Says goodbye, and waits until rank 0 has heard it.
  void goodbye(Deadline deadline);

 private:
  struct Gathering {
    std::map<int, Gathered> given;  ///< By rank; it may come before this rank asks for it.
    bool is_waited_for = false;     ///< A thread of this rank has given, and waits.
  };

  void run();
  void serve_until_stopped();
  bool listen(bool process_ended);
  void handle(Message&& message);
  void end();
  void send(const Message& message);
  void set_failure(const Failure& failure);
  std::vector<int> missing(const std::vector<int>& members, const Gathering& gathering) const;
  std::optional<int> first_gone(const std::vector<int>& missing) const;

  const int rank_;
  const int world_;
  const std::string who_;  ///< Rank 0.

  // The thread's own.
  Connection connection_;
  launch::UniqueFd process_;

  Waker waker_;
  std::atomic<bool> has_failed_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> to_send_;
  std::map<std::string, Gathering> gatherings_;  ///< By tag.
  std::set<std::string> given_up_;  ///< Tags of gathers that threw: what comes for them is dropped.
  std::set<int> left_;
  std::optional<Failure> failure_;
  bool said_goodbye_ = false;
  bool ended_ = false;  ///< The connection.
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep::transport
