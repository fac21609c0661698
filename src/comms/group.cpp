#include "comms/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::comms {

namespace {

using plan::Collective;
using transport::Header;
using transport::Limit;

std::vector<int> ascending(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

/// A collective that waits for its turn.
class Group::QueuedWork final : public Work::State {
 public:
  QueuedWork(Request wanted, int rank) : request(std::move(wanted)), rank_(rank) {}

  bool test() override {
    owner_.require("Work::is_completed", rank_);
    const std::lock_guard lock(mutex_);
    if (done_ && error_) std::rethrow_exception(error_);
    return done_;
  }
  void wait() override {
    owner_.require("Work::wait", rank_);
    std::unique_lock lock(mutex_);
    over_.wait(lock, [&] { return done_; });
    if (error_) std::rethrow_exception(error_);
  }
  std::chrono::steady_clock::time_point finished_at() override {
    owner_.require("Work::finished_at", rank_);
    const std::lock_guard lock(mutex_);
    return finished_at_;
  }
  void finish(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    finished_at_ = std::chrono::steady_clock::now();
    error_ = std::move(error);
    done_ = true;
    over_.notify_all();
  }

  const Request request;

 private:
  const transport::Owner owner_;
  const int rank_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::chrono::steady_clock::time_point finished_at_;
  std::exception_ptr error_;
};

/// How a message is asked. Of several threads that do, one at a time moves it.
class Group::MessageWork final : public Work::State {
 public:
  /// What a trace tells of it.
  struct Told {
    bool sends;
    int peer;
    int64_t bytes;
    int64_t begin_ns;  ///< 0 if it is not traced.
  };
  MessageWork(std::shared_ptr<Group> group, std::shared_ptr<Message> message, bool is_accompanied,
              const Told& told)
      : group_(std::move(group)),
        message_(std::move(message)),
        is_accompanied_(is_accompanied),
        told_(told) {}

  ~MessageWork() override {
    message_->is_held = false;
    const bool has_failed = group_->job_->control().has_failed();
    if (has_failed && !over_) let_go();
    if (has_failed || over_ || is_accompanied_) return;
    try {  // half a message would spoil all that follow it
      group_->guard(message_->header, [&] { group_->messenger_.accompany(message_); });
    } catch (...) {
      // No thread to be had: the job has failed.
    }
  }

  bool test() override {
    group_->owner_.require("Work::is_completed", group_->rank());
    std::unique_lock lock(mutex_);
    if (!over_ && !is_moved_) move(lock, [&] { return message_->transfer->test(); });
    if (error_) std::rethrow_exception(error_);
    return over_;
  }
  void wait() override {
    group_->owner_.require("Work::wait", group_->rank());
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (is_moved_) {
        changed_.wait(lock);
      } else {
        move(lock, [&] { return message_->transfer->wait(message_->limit), true; });
      }
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  /// Calls `act`, which returns whether the message is over, without the lock.
  template <typename Act>
  void move(std::unique_lock<std::mutex>& lock, const Act& act) {
    is_moved_ = true;
    lock.unlock();
    bool over = false;
    std::exception_ptr error;
    try {
      group_->guard(message_->header, [&] { over = act(); });
      if (over) record();
    } catch (...) {
      error = std::current_exception();
      let_go();
    }
    lock.lock();
    is_moved_ = false;
    over_ = over || error;
    error_ = error;
    changed_.notify_all();
  }
  /// Whoever learns of a failure may free the buffer: nothing moves it any more.
  void let_go() {
    if (is_accompanied_) group_->messenger_.forget(message_);
    message_->transfer.reset();
  }
  void record() const {
    if (told_.begin_ns == 0 || !trace::enabled()) return;
    const trace::Name name(fmt::format("{} {}", told_.sends ? "send" : "recv", told_.peer));
    trace::record(name, told_.begin_ns, trace::now_ns(),
                  {.stream = trace::Stream::kCommunication,
                   .bytes = told_.bytes,
                   .peer = told_.peer,
                   .call = message_->header.root});
  }

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Message> message_;
  const bool is_accompanied_;
  const Told told_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_moved_ = false;  ///< A thread is at it, without the lock.
  bool over_ = false;
  std::exception_ptr error_;
};

Group::Group(std::shared_ptr<transport::Job> job, std::string tag, std::vector<int> members,
             int ranks_per_node, std::chrono::milliseconds timeout)
    : job_(std::move(job)),
      tag_(std::move(tag)),
      members_(std::move(members)),
      timeout_(transport::bounded(timeout)),
      transport_(job_->make_group(tag_, members_, transport::Control::Clock::now() + timeout_)),
      plans_(transport_->rank(), transport_->world(), ranks_per_node),
      executor_(*transport_, tag_ == "world" ? "" : fmt::format(" ({})", tag_)),
      messenger_([this](const Header& header, const std::function<void()>& act) { guard(header, act); }) {}

Group::~Group() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  turn_.notify_all();
  if (server_.joinable()) server_.join();
}

void Group::admit(const Request& request) const {
  owner_.require(name(request.collective), rank());
  check(request, rank(), world());
  limit_of(request.timeout);
}

Limit Group::limit_of(std::chrono::milliseconds timeout) const {
  if (timeout.count() < 0) {
    throw UsageError(
        fmt::format("CallOptions::timeout is {} ms; hint: 0 is the communicator's own", timeout.count()));
  }
  return {.timeout = timeout.count() > 0 ? transport::bounded(timeout) : timeout_,
          .failed = &job_->control().failed_flag()};
}

void Group::withdraw() {
  transport_->withdraw();
  job_->retire_memory();
}

void Group::throw_failure() {
  withdraw();
  auto failure = job_->control().failure().value_or(transport::Failure{.text = "the job has failed"});
  if (const std::string history = history_.text(); !history.empty()) failure.text += "; " + history;
  failure.raise();
}

void Group::fail(const std::string& text, int culprit, bool timed_out) {
  job_->control().fail({.peer = culprit, .text = text, .timed_out = timed_out});
  throw_failure();
}

template <typename Act>
void Group::guard(const Header& header, const Act& act) {
  if (job_->control().has_failed()) throw_failure();
  // The control plane, by which groups are made, counts ranks of the job.
  const auto of_job = [&](int peer) {
    return peer < 0 || header.operation == kSplit ? peer : members_[static_cast<size_t>(peer)];
  };
  try {
    act();
  } catch (const transport::Interrupted&) {
    throw_failure();
  } catch (const transport::Mismatch& mismatch) {
    // Both sides say the same: the lower rank comes first.
    const std::string own = describe(mismatch.ours);
    const std::string theirs = describe(mismatch.theirs);
    const bool first = rank() < mismatch.peer;
    fail(fmt::format(
             "{}: rank {} called {}, rank {} called {}; hint: all ranks must make the same calls in the "
             "same order",
             title(mismatch.ours), std::min(rank(), mismatch.peer), first ? own : theirs,
             std::max(rank(), mismatch.peer), first ? theirs : own),
         of_job(mismatch.peer));
  } catch (const TimeoutError& error) {
    constexpr std::string_view kHint =
        " within the timeout; hint: it may be stuck, stopped or in other code; the timeout can be raised";
    const std::string_view why = error.what();
    fail(fmt::format("{} on rank {}: {}{}", title(header), rank(), why,
                     why.find("; hint: ") == why.npos ? kHint : ""),
         of_job(error.peer), true);
  } catch (const PeerError& error) {
    fail(fmt::format("{} on rank {}: {}", title(header), rank(), error.what()), of_job(error.peer));
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    fail(fmt::format("{} on rank {}: {}", title(header), rank(), error.what()),
         members_[static_cast<size_t>(rank())]);
  }
}

void Group::execute(const Request& request, trace::Stream stream) {
  Header header = {
      .call = calls_ + 1,
      .count = agreed(request).count,
      .root = request.parts.empty() ? request.root : fingerprint(request.parts),
      .operation = static_cast<uint8_t>(request.collective),
      .type = static_cast<uint8_t>(agreed(request).type),
      .reduce = static_cast<uint8_t>(is_reduction(request.collective) ? request.op : ReduceOp::kSum)};
  guard(header, [&] {
    const auto find_plan = [&](std::string_view algorithm) -> const ReadyPlan& {
      return plans_.find(request.collective, algorithm, request.root);
    };
    const auto runs = [&](const ReadyPlan& plan) {
      const Data data = lay_out(request, plan, rank(), work_);
      if (!executor_.run(plan, header, data, limit_of(request.timeout), stream)) return false;
      take_out(request, plan.plan, rank(), data);
      return true;
    };
    const bool shares = transport_->one_sided() != nullptr;
    const ReadyPlan& ready = find_plan(
        request.algorithm.empty() ? usual_algorithm(request, engine(), world(), shares) : request.algorithm);
    header.algorithm = ready.algorithm;
    ++calls_;
    history_.add(header);
    if (!runs(ready)) runs(find_plan(usual_algorithm(request, engine(), world(), /*shares=*/false)));
  });
}

template <typename Act>
void Group::take_turn(const Act& act) {
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return !running_ && queue_.empty(); });
    running_ = true;
  }
  struct Turn {
    Group& group;
    ~Turn() {
      {
        const std::lock_guard lock(group.mutex_);
        group.running_ = false;
      }
      group.turn_.notify_all();
    }
  } const turn{*this};
  act();
}

void Group::run(const Request& request) {
  admit(request);
  take_turn([&] { execute(request, trace::Stream::kCommunication); });
}

Work Group::start(Request request) {
  admit(request);
  const std::string_view call = name(request.collective);
  try {
    auto work = transport::make_owned<QueuedWork>(std::move(request), rank());
    {
      const std::lock_guard lock(mutex_);
      if (!server_.joinable()) server_ = std::thread([this] { serve(); });
      queue_.push_back(work);
    }
    turn_.notify_all();
    return Work(work);
  } catch (const std::exception& error) {  // no memory or no thread to be had; the others may have begun
    fail(fmt::format("{} on rank {}: {}", call, rank(), error.what()), members_[static_cast<size_t>(rank())]);
  }
}

void Group::serve() {
  trace::set_rank(members_[static_cast<size_t>(rank())]);
  std::unique_lock lock(mutex_);
  for (;;) {
    turn_.wait(lock, [&] { return (!running_ && !queue_.empty()) || (stopping_ && queue_.empty()); });
    if (queue_.empty()) return;
    const auto work = queue_.front();
    running_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      execute(work->request, trace::Stream::kProgress);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    queue_.pop_front();
    running_ = false;
    work->finish(error);
    turn_.notify_all();
  }
}

Work Group::start_message(bool sends, const Buffer& data, int peer, int tag,
                          std::chrono::milliseconds timeout, bool is_waited_for) {
  const std::string_view call = sends ? "send" : "recv";
  owner_.require(call, rank());
  check_buffer(call, rank(), data, "the data");
  if (peer < 0 || peer >= world() || peer == rank()) {
    throw UsageError(fmt::format("{} on rank {}: peer {} in a world of {}{}", call, rank(), peer, world(),
                                 peer == rank() ? " is the rank itself" : ""));
  }
  const Header header = {.call = 0,
                         .count = data.count,
                         .root = tag,
                         .operation = kPointToPoint,
                         .type = static_cast<uint8_t>(data.type)};
  const MessageWork::Told told = {.sends = sends,
                                  .peer = peer,
                                  .bytes = static_cast<int64_t>(data.bytes()),
                                  .begin_ns = trace::enabled() ? trace::now_ns() : 0};
  const auto message = std::make_shared<Message>();
  message->header = header;
  message->limit = limit_of(timeout);
  Work work;
  guard(header, [&] {
    constexpr auto kStream = transport::Stream::kPointToPoint;
    message->transfer = sends ? transport_->send(kStream, peer, header, data.data, data.bytes())
                              : transport_->receive(kStream, peer, header, data.data, data.bytes());
    const bool needs_company = !is_waited_for && message->transfer->needs_company();
    if (needs_company) messenger_.accompany(message);
    work = Work(transport::make_owned<MessageWork>(shared_from_this(), message, needs_company, told));
  });
  return work;
}

Work Group::start_send(const Buffer& data, int to, int tag, std::chrono::milliseconds timeout,
                       bool is_waited_for) {
  return start_message(true, data, to, tag, timeout, is_waited_for);
}

Work Group::start_receive(const Buffer& data, int from, int tag, std::chrono::milliseconds timeout,
                          bool is_waited_for) {
  return start_message(false, data, from, tag, timeout, is_waited_for);
}

std::shared_ptr<Group> Group::split(int colour, int key) {
  owner_.require("split", rank());
  std::shared_ptr<Group> group;
  take_turn([&] {
    const Header header = {.call = ++splits_, .operation = kSplit};
    history_.add(header);
    guard(header, [&] { group = make_split(fmt::format("{}/{}", tag_, splits_), colour, key); });
  });
  return group;
}

std::shared_ptr<Group> Group::make_split(const std::string& tag, int colour, int key) {
  const auto deadline = transport::Control::Clock::now() + timeout_;
  const auto all = ascending(members_);
  const auto blobs = job_->control().all_gather(tag, all, fmt::format("{} {}", colour, key), deadline);
  struct Place {
    int key;
    int rank;  // of this group
    int member;
  };
  std::vector<Place> places;
  for (int i = 0; i < world(); ++i) {
    const int member = members_[static_cast<size_t>(i)];
    const std::string& blob =
        blobs[static_cast<size_t>(std::lower_bound(all.begin(), all.end(), member) - all.begin())];
    const size_t space = blob.find(' ');
    if (std::stoi(blob.substr(0, space)) == colour)
      places.push_back({std::stoi(blob.substr(space + 1)), i, member});
  }
  if (colour < 0) return nullptr;
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
  std::vector<int> members;
  for (const auto& place : places) members.push_back(place.member);
  return transport::make_owned<Group>(job_, fmt::format("{}:{}", tag, colour), members, 1, timeout_);
}

std::shared_ptr<void> Group::allocate(size_t bytes) {
  owner_.require("allocate", rank());
  transport::OneSided* const memory = transport_->one_sided();
  if (memory == nullptr)
    return std::shared_ptr<void>(::operator new (bytes, std::align_val_t{64}),
                                 [](void* block) { ::operator delete (block, std::align_val_t{64}); });
  void* const block = memory->allocate(bytes);
  if (block == nullptr) throw_failure();
  return std::shared_ptr<void>(block, [memory, keeps = shared_from_this()](void* freed) {
    if (keeps->owner_.is_here()) memory->deallocate(freed);
  });
}

void Group::abort(const std::string& reason) {
  owner_.require("abort", rank());
  job_->control().fail({.peer = members_[static_cast<size_t>(rank())],
                        .text = fmt::format("rank {} ended the communication: {}",
                                            members_[static_cast<size_t>(rank())], reason)});
}

}  // namespace lockstep::comms
