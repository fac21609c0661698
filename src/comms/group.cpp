#include "comms/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "comms/copy.h"
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
  explicit QueuedWork(Request wanted) : request(std::move(wanted)) {}

  bool test() override {
    const std::lock_guard lock(mutex_);
    if (done_ && error_) std::rethrow_exception(error_);
    return done_;
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    over_.wait(lock, [&] { return done_; });
    if (error_) std::rethrow_exception(error_);
  }
  std::chrono::steady_clock::time_point finished_at() override {
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
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::chrono::steady_clock::time_point finished_at_;
  std::exception_ptr error_;
};

/// How a message is asked.
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
    if (over_ || is_accompanied_) return;
    try {
      group_->messenger_.accompany(message_);  // half a message would spoil all that follow it
    } catch (...) {
      // No thread to be had. The rank waits for the next message in vain, and says so.
    }
  }

  bool test() override {
    if (error_) std::rethrow_exception(error_);
    if (over_) return true;
    act([&] { over_ = message_->transfer->test(); });
    if (over_) record();
    return over_;
  }
  void wait() override {
    if (error_) std::rethrow_exception(error_);
    if (over_) return;
    act([&] { message_->transfer->wait(message_->limit); });
    over_ = true;
    record();
  }

 private:
  void act(const std::function<void()>& what) {
    try {
      group_->guard(message_->header, what);
    } catch (...) {
      error_ = std::current_exception();
      let_go();
      throw;
    }
  }
  /// Whoever hears of a failure may free the buffer: nothing moves it any more.
  void let_go() {
    over_ = true;
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
  bool over_ = false;
  std::exception_ptr error_;
};

Group::Group(std::shared_ptr<transport::Job> job, std::string tag, std::vector<int> members,
             int ranks_per_node, std::chrono::milliseconds timeout)
    : job_(std::move(job)),
      tag_(std::move(tag)),
      members_(std::move(members)),
      timeout_(timeout),
      transport_(job_->make_group(tag_, members_, transport::Control::Clock::now() + timeout)),
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

Limit Group::limit_of(std::chrono::milliseconds timeout) const {
  return {.timeout = timeout.count() > 0 ? timeout : timeout_, .failed = &job_->control().failed_flag()};
}

void Group::withdraw() {
  transport_->withdraw();
  job_->retire_memory();
}

void Group::throw_failure() {
  withdraw();
  const auto failure = job_->control().failure();
  const std::string history = history_.text();
  throw PeerError(fmt::format("{}{}{}", failure ? failure->text : "the job has failed",
                              history.empty() ? "" : "; ", history),
                  failure ? failure->peer : -1);
}

void Group::fail(const std::string& text, int peer, bool timed_out) {
  const int culprit = peer < 0 ? peer : members_[static_cast<size_t>(peer)];
  job_->control().fail({.peer = culprit, .text = text});
  const auto first = job_->control().failure();
  if (timed_out && first && first->text == text) {
    withdraw();
    throw TimeoutError(fmt::format("{}; {}", text, history_.text()), culprit);
  }
  throw_failure();
}

template <typename Act>
void Group::guard(const Header& header, const Act& act) {
  if (job_->control().has_failed()) throw_failure();
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
         mismatch.peer, false);
  } catch (const TimeoutError& error) {
    fail(fmt::format(
             "{} on rank {}: {} within the timeout; hint: it may be stuck, stopped or in other code; the "
             "timeout can be raised",
             title(header), rank(), error.what()),
         error.peer, true);
  } catch (const PeerError& error) {
    fail(fmt::format("{} on rank {}: {}", title(header), rank(), error.what()), error.peer, false);
  }
}

void Group::execute_native(const Request& request) {
  const bool takes = request.parts.empty() && request.collective == Collective::kAllReduce &&
                     request.op == ReduceOp::kSum && request.input.type == DataType::kFloat32;
  const Header header = {.call = ++calls_,
                         .count = request.input.count,
                         .operation = static_cast<uint8_t>(request.collective),
                         .type = static_cast<uint8_t>(request.input.type),
                         .reduce = static_cast<uint8_t>(request.op),
                         .algorithm = kNative};
  history_.add(header);
  guard(header, [&] {
    if (takes) {
      auto* const data = static_cast<float*>(request.output.data);
      if (data != request.input.data) comms::copy(data, request.input.data, request.input.bytes());
      if (transport_->native_sum(data, request.input.count)) return;
    }
    throw UsageError(
        fmt::format("{} on rank {}: engine {} has none of its own; hint: native is for sums of float32 over "
                    "all ranks, by "
                    "gloo or mpi",
                    describe(header), rank(), engine()));
  });
}

void Group::execute(const Request& request, trace::Stream stream) {
  if (request.algorithm == "native") return execute_native(request);
  const bool shares = transport_->one_sided() != nullptr;
  const ReadyPlan& ready = plans_.find(
      request.collective,
      request.algorithm.empty() ? usual_algorithm(request, engine(), world(), shares) : request.algorithm,
      request.root);
  const bool scatters = request.collective == Collective::kScatter;
  const Header header = {
      .call = ++calls_,
      .count = scatters ? request.output.count : request.input.count,
      .root = request.parts.empty() ? request.root : fingerprint(request.parts),
      .operation = static_cast<uint8_t>(request.collective),
      .type = static_cast<uint8_t>(scatters ? request.output.type : request.input.type),
      .reduce = static_cast<uint8_t>(is_reduction(request.collective) ? request.op : ReduceOp::kSum),
      .algorithm = ready.algorithm};
  history_.add(header);
  guard(header, [&] {
    const auto runs = [&](const ReadyPlan& plan) {
      const Data data = lay_out(request, plan, rank(), work_);
      if (!executor_.run(plan, header, data, limit_of(request.timeout), stream)) return false;
      take_out(request, plan.plan, rank(), data);
      return true;
    };
    if (runs(ready)) return;
    runs(plans_.find(request.collective, usual_algorithm(request, engine(), world(), /*shares=*/false),
                     request.root));
  });
}

void Group::run(const Request& request) {
  check(request, rank(), world());
  {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return !running_ && queue_.empty(); });
    running_ = true;
  }
  const auto give_turn = [&] {
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
    }
    turn_.notify_all();
  };
  try {
    execute(request, trace::Stream::kCommunication);
  } catch (...) {
    give_turn();
    throw;
  }
  give_turn();
}

Work Group::start(Request request) {
  check(request, rank(), world());
  auto work = std::make_shared<QueuedWork>(std::move(request));
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(work);
    if (!server_.joinable()) server_ = std::thread([this] { serve(); });
  }
  turn_.notify_all();
  return Work(work);
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
  if (peer < 0 || peer >= world() || peer == rank()) {
    throw UsageError(fmt::format("{} on rank {}: peer {} in a world of {}{}", sends ? "send" : "recv", rank(),
                                 peer, world(), peer == rank() ? " is the rank itself" : ""));
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
  bool needs_company = false;
  guard(header, [&] {
    constexpr auto kStream = transport::Stream::kPointToPoint;
    message->transfer = sends ? transport_->send(kStream, peer, header, data.data, data.bytes())
                              : transport_->receive(kStream, peer, header, data.data, data.bytes());
    needs_company = !is_waited_for && message->transfer->needs_company();
  });
  if (needs_company) messenger_.accompany(message);
  return Work(std::make_shared<MessageWork>(shared_from_this(), message, needs_company, told));
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
  const std::string tag = fmt::format("{}/{}", tag_, ++splits_);
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
  return std::make_shared<Group>(job_, fmt::format("{}:{}", tag, colour), members, 1, timeout_);
}

std::shared_ptr<void> Group::allocate(size_t bytes) {
  transport::OneSided* const memory = transport_->one_sided();
  if (memory == nullptr)
    return std::shared_ptr<void>(::operator new (bytes, std::align_val_t{64}),
                                 [](void* block) { ::operator delete (block, std::align_val_t{64}); });
  void* const block = memory->allocate(bytes);
  if (block == nullptr) throw_failure();
  return std::shared_ptr<void>(
      block, [memory, keeps = shared_from_this()](void* freed) { memory->deallocate(freed); });
}

void Group::abort(const std::string& reason) {
  job_->control().fail({.peer = members_[static_cast<size_t>(rank())],
                        .text = fmt::format("rank {} ended the communication: {}",
                                            members_[static_cast<size_t>(rank())], reason)});
}

}  // namespace lockstep::comms
