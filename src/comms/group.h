#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comms/execute.h"
#include "comms/history.h"
#include "comms/messenger.h"
#include "comms/ready_plan.h"
#include "comms/request.h"
#include "lockstep/comms/communicator.h"
#include "transport/job.h"
#include "transport/owner.h"

namespace lockstep::comms {

/// What all copies of a Communicator share. Made by transport::make_owned: a forked child keeps it, unused.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// `members` are ranks of the job, in the order of ranks of the group; `tag` names the group within the
  /// job.
  Group(std::shared_ptr<transport::Job> job, std::string tag, std::vector<int> members, int ranks_per_node,
        std::chrono::milliseconds timeout);
  ~Group();

  int rank() const { return transport_->rank(); }
  int world() const { return transport_->world(); }
  std::string_view engine() const { return job_->engine(); }

  void run(const Request& request);
  Work start(Request request);

  /// A message that the caller does not wait for at once goes on by itself.
  Work start_send(const Buffer& data, int to, int tag, std::chrono::milliseconds timeout, bool is_waited_for);
  Work start_receive(const Buffer& data, int from, int tag, std::chrono::milliseconds timeout,
                     bool is_waited_for);

  std::shared_ptr<Group> split(int colour, int key);
  std::shared_ptr<void> allocate(size_t bytes);
  void abort(const std::string& reason);

 private:
  class QueuedWork;
  class MessageWork;

  /// Calls `act` once no other call runs and none is queued.
  template <typename Act>
  void take_turn(const Act& act);
  /// Runs the request on this thread; its turn has come.
  void execute(const Request& request, trace::Stream stream);
  /// Before a call begins: throws UsageError for one that cannot be made.
  void admit(const Request& request) const;
  transport::Limit limit_of(std::chrono::milliseconds timeout) const;
  /// Calls `act`; whatever it throws becomes everybody's failure, under the call's name. But for UsageError,
  /// which all ranks throw alike, before anything has moved.
  template <typename Act>
  void guard(const transport::Header& header, const Act& act);
  /// `culprit` is a rank of the job, or -1.
  [[noreturn]] void fail(const std::string& text, int culprit, bool timed_out = false);
  [[noreturn]] void throw_failure();
  /// Before a call throws: its buffers are the caller's again, and what others read there from now on is
  /// void.
  void withdraw();
  Work start_message(bool sends, const Buffer& data, int peer, int tag, std::chrono::milliseconds timeout,
                     bool is_waited_for);
  void serve();
  std::shared_ptr<Group> make_split(const std::string& tag, int colour, int key);

  const transport::Owner owner_;
  const std::shared_ptr<transport::Job> job_;
  const std::string tag_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<transport::Transport> transport_;
  PlanCache plans_;
  Executor executor_;
  History history_;
  uint64_t calls_ = 0;  ///< By turns, as are its plans, its history and what follows.
  uint64_t splits_ = 0;
  std::vector<std::byte> work_;  ///< For collectives whose buffers are not laid out as their plan is.

  // Turns: a call runs when no other does and none was queued before it.
  std::mutex mutex_;
  std::condition_variable turn_;
  bool running_ = false;
  bool stopping_ = false;
  std::deque<std::shared_ptr<QueuedWork>> queue_;
  std::thread server_;  ///< Of what is queued; started when first needed.

  Messenger messenger_;  ///< Last: it uses the rest until it is gone.
};

}  // namespace lockstep::comms
