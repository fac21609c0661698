#include "comms/group.h"

#include <fmt/format.h>

#include <algorithm>

#include "comms/combine.h"
#include "comms/copy.h"
#include "lockstep/error.h"

namespace lockstep::comms {

namespace {

using plan::Collective;
using transport::Header;
using transport::Limit;

bool is_reduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

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
  void finish(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    done_ = true;
    over_.notify_all();
  }

  const Request request;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::exception_ptr error_;
};

/// A message on its way.
class Group::MessageWork final : public Work::State {
 public:
  MessageWork(std::shared_ptr<Group> group, const Header& header,
              std::unique_ptr<transport::Transfer> transfer, const Limit& limit)
      : group_(std::move(group)), header_(header), transfer_(std::move(transfer)), limit_(limit) {}

  ~MessageWork() override {
    // Half a message would spoil all that follow it.
    if (!over_ && !group_->job_->control().has_failed()) group_->adopt(std::move(transfer_));
  }

  bool test() override {
    group_->guard(header_, [&] { over_ = over_ || transfer_->test(); });
    return over_;
  }
  void wait() override {
    group_->guard(header_, [&] { transfer_->wait(limit_); });
    over_ = true;
  }

 private:
  const std::shared_ptr<Group> group_;
  const Header header_;
  std::unique_ptr<transport::Transfer> transfer_;
  const Limit limit_;
  bool over_ = false;
};

Group::Group(std::shared_ptr<transport::Job> job, std::string tag, std::vector<int> members,
             int ranks_per_node, std::chrono::milliseconds timeout)
    : job_(std::move(job)),
      tag_(std::move(tag)),
      members_(std::move(members)),
      ranks_per_node_(ranks_per_node),
      timeout_(timeout),
      transport_(job_->make_group(tag_, members_, transport::Control::Clock::now() + timeout)),
      plans_(transport_->rank(), transport_->world(), ranks_per_node),
      executor_(*transport_) {}

Group::~Group() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  turn_.notify_all();
  orphaned_.notify_all();
  if (server_.joinable()) server_.join();
  if (messenger_.joinable()) messenger_.join();
}

Limit Group::limit_of(std::chrono::milliseconds timeout) const {
  return {.timeout = timeout.count() > 0 ? timeout : timeout_, .failed = &job_->control().failed_flag()};
}

void Group::throw_failure() {
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

void Group::check(const Request& request) const {
  const std::string_view what = name(request.collective);
  if (request.root < 0 || request.root >= world()) {
    throw UsageError(
        fmt::format("{} on rank {}: root {} in a world of {}", what, rank(), request.root, world()));
  }
  if (is_reduction(request.collective) && request.op == ReduceOp::kMean &&
      !is_floating_point(request.input.type)) {
    throw UsageError(fmt::format("{} on rank {}: the mean of {}; hint: use sum, or a floating-point type",
                                 what, rank(), name(request.input.type)));
  }
  const auto expect = [&](const Buffer& buffer, int64_t count, const char* which) {
    if (buffer.count == count && (buffer.data != nullptr || count == 0)) return;
    throw UsageError(fmt::format("{} on rank {}: {} has {} elements, {} are needed", what, rank(), which,
                                 buffer.data == nullptr ? 0 : buffer.count, count));
  };
  const Buffer& input = request.input;
  const Buffer& output = request.output;
  const bool is_root = rank() == request.root;
  switch (request.collective) {
    case Collective::kAllGather:
      expect(output, input.count * world(), "the output");
      break;
    case Collective::kGather:
      if (is_root) expect(output, input.count * world(), "the output");
      break;
    case Collective::kScatter:
      if (is_root) expect(input, output.count * world(), "the input");
      break;
    case Collective::kReduceScatter: {
      const int64_t own = input.count / world() + (rank() < input.count % world() ? 1 : 0);
      expect(output, own, "the output");
      break;
    }
    case Collective::kAllToAll:
      expect(output, input.count, "the output");
      if (input.count % world() != 0) {
        throw UsageError(fmt::format("{} on rank {}: {} elements do not divide into {} parts", what, rank(),
                                     input.count, world()));
      }
      break;
    default:
      break;
  }
  const bool uses_both =
      request.collective != Collective::kBarrier && output.data != nullptr && input.data != nullptr;
  if (uses_both && input.type != output.type) {
    throw UsageError(fmt::format("{} on rank {}: input of {} and output of {}", what, rank(),
                                 name(input.type), name(output.type)));
  }
}

std::string_view Group::choose(const Request& request) const {
  if (!request.algorithm.empty()) return request.algorithm;
  const bool shares = transport_->one_sided() != nullptr;
  switch (request.collective) {
    case Collective::kAllReduce:
      if (!shares) return "direct";
      return request.input.bytes() <= transport::OneSided::kInboxBytes ? "one-shot" : "push";
    case Collective::kBarrier:
      return shares ? "flags" : "dissemination";
    case Collective::kBroadcast:
      return "binomial";
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return "linear";
    case Collective::kScatter:
    case Collective::kGather:
      return "linear";
    case Collective::kAllGather:
      return "ring";
  }
  return "";
}

Data Group::lay_out(const Request& request, const plan::Plan& plan) {
  const auto bytes_of = [](const Buffer& buffer) { return static_cast<std::byte*>(buffer.data); };
  const Buffer& input = request.input;
  const Buffer& output = request.output;
  Data data = {.count = input.count, .type = input.type, .op = request.op};
  const size_t element_bytes = size_of(data.type);
  const auto own_work = [&](int64_t count) {
    work_.resize(std::max(work_.size(), static_cast<size_t>(count) * element_bytes));
    return work_.data();
  };
  const bool is_root = rank() == request.root;
  switch (request.collective) {
    case Collective::kAllReduce:
      if (output.data != input.data) comms::copy(output.data, input.data, input.bytes());
      data.slots = bytes_of(output);
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      data.slots = bytes_of(input);
      break;
    case Collective::kReduceScatter:
      data.slots = own_work(input.count);
      comms::copy(data.slots, input.data, input.bytes());
      break;
    case Collective::kScatter:
      data.count = output.count;
      data.type = output.type;
      data.slots = is_root ? bytes_of(input) : own_work(output.count * plan.world);
      break;
    case Collective::kGather:
    case Collective::kAllGather: {
      const bool has_output = request.collective == Collective::kAllGather || is_root;
      data.slots = has_output ? bytes_of(output) : own_work(input.count * plan.world);
      std::byte* const own = data.slots + static_cast<size_t>(rank()) * input.bytes();
      if (own != input.data) comms::copy(own, input.data, input.bytes());
      break;
    }
    case Collective::kAllToAll:
      data.count = input.count / plan.world;
      data.slots = bytes_of(input);
      data.inbox = bytes_of(output);
      break;
  }
  return data;
}

void Group::take_out(const Request& request, const plan::Plan& plan, const Data& data) {
  std::byte* result = data.slots;
  int64_t count = data.count;
  if (request.collective == Collective::kScatter || request.collective == Collective::kReduceScatter) {
    const size_t element_bytes = size_of(data.type);
    result += static_cast<size_t>(chunk_begin(plan, data.count, rank())) * element_bytes;
    count = chunk_elements(plan, data.count, rank(), 1);
    comms::copy(request.output.data, result, static_cast<size_t>(count) * element_bytes);
    result = static_cast<std::byte*>(request.output.data);
  }
  // Plans in rank order have divided where they added.
  const bool divides = is_reduction(request.collective) && request.op == ReduceOp::kMean &&
                       plan.order != plan::Order::kRank &&
                       (request.collective != Collective::kReduce || rank() == request.root);
  if (!divides) return;
  const std::array<const void*, 1> sources = {result};
  const std::array<void*, 1> destinations = {result};
  combine(data.type, ReduceOp::kMean, sources, destinations, count, plan.world);
}

void Group::execute_native(const Request& request) {
  const bool takes = request.collective == Collective::kAllReduce && request.op == ReduceOp::kSum &&
                     request.input.type == DataType::kFloat32;
  const Header header = {.call = ++calls_,
                         .count = request.input.count,
                         .operation = static_cast<uint8_t>(request.collective),
                         .type = static_cast<uint8_t>(request.input.type),
                         .reduce = static_cast<uint8_t>(request.op),
                         .algorithm = kNative};
  history_.add(header);
  guard(header, [&] {
    if (takes) {
      const Data data = lay_out(request, {});
      if (transport_->native_sum(reinterpret_cast<float*>(data.slots), data.count)) return;
    }
    throw UsageError(
        fmt::format("{} on rank {}: engine {} has none of its own; hint: native is for sums of float32 over "
                    "all ranks, by "
                    "gloo or mpi",
                    describe(header), rank(), engine()));
  });
}

void Group::execute(const Request& request) {
  if (request.algorithm == "native") return execute_native(request);
  const ReadyPlan& ready = plans_.find(request.collective, choose(request), request.root);
  const bool scatters = request.collective == Collective::kScatter;
  const Header header = {
      .call = ++calls_,
      .count = scatters ? request.output.count : request.input.count,
      .root = request.root,
      .operation = static_cast<uint8_t>(request.collective),
      .type = static_cast<uint8_t>(scatters ? request.output.type : request.input.type),
      .reduce = static_cast<uint8_t>(is_reduction(request.collective) ? request.op : ReduceOp::kSum),
      .algorithm = ready.algorithm};
  history_.add(header);
  guard(header, [&] {
    const Data data = lay_out(request, ready.plan);
    executor_.run(ready, header, data, limit_of(request.timeout));
    take_out(request, ready.plan, data);
  });
}

void Group::run(const Request& request) {
  check(request);
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
    execute(request);
  } catch (...) {
    give_turn();
    throw;
  }
  give_turn();
}

Work Group::start(Request request) {
  check(request);
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
  std::unique_lock lock(mutex_);
  for (;;) {
    turn_.wait(lock, [&] { return (!running_ && !queue_.empty()) || (stopping_ && queue_.empty()); });
    if (queue_.empty()) return;
    const auto work = queue_.front();
    running_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      execute(work->request);
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

void Group::adopt(std::unique_ptr<transport::Transfer> orphan) {
  const std::lock_guard lock(mutex_);
  orphans_.push_back(std::move(orphan));
  if (!messenger_.joinable()) messenger_ = std::thread([this] { see_orphans_through(); });
  orphaned_.notify_all();
}

void Group::see_orphans_through() {
  std::unique_lock lock(mutex_);
  for (;;) {
    orphaned_.wait(lock, [&] { return stopping_ || !orphans_.empty(); });
    if (orphans_.empty()) return;
    const auto orphan = std::move(orphans_.front());
    orphans_.pop_front();
    lock.unlock();
    const Header header = {.call = 0, .operation = kPointToPoint};
    try {
      guard(header, [&] { orphan->wait(limit_of({})); });
    } catch (const Error&) {
      // It is everybody's failure now: the next call throws it.
    }
    lock.lock();
  }
}

Work Group::start_message(bool sends, const Buffer& data, int peer, int tag,
                          std::chrono::milliseconds timeout) {
  if (peer < 0 || peer >= world() || peer == rank()) {
    throw UsageError(fmt::format("{} on rank {}: peer {} in a world of {}{}", sends ? "send" : "recv", rank(),
                                 peer, world(), peer == rank() ? " is the rank itself" : ""));
  }
  const Header header = {.call = 0,
                         .count = data.count,
                         .root = tag,
                         .operation = kPointToPoint,
                         .type = static_cast<uint8_t>(data.type)};
  std::unique_ptr<transport::Transfer> transfer;
  guard(header, [&] {
    constexpr auto kStream = transport::Stream::kPointToPoint;
    transfer = sends ? transport_->send(kStream, peer, header, data.data, data.bytes())
                     : transport_->receive(kStream, peer, header, data.data, data.bytes());
  });
  return Work(
      std::make_shared<MessageWork>(shared_from_this(), header, std::move(transfer), limit_of(timeout)));
}

Work Group::start_send(const Buffer& data, int to, int tag, std::chrono::milliseconds timeout) {
  return start_message(true, data, to, tag, timeout);
}

Work Group::start_receive(const Buffer& data, int from, int tag, std::chrono::milliseconds timeout) {
  return start_message(false, data, from, tag, timeout);
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
  return std::shared_ptr<void>(memory->allocate(bytes), [memory, keeps = shared_from_this()](void* block) {
    // What a failed job's late rank may still write to is not given to anybody else.
    if (!keeps->job_->control().has_failed()) memory->deallocate(block);
  });
}

void Group::abort(const std::string& reason) {
  job_->control().fail({.peer = members_[static_cast<size_t>(rank())],
                        .text = fmt::format("rank {} ended the communication: {}",
                                            members_[static_cast<size_t>(rank())], reason)});
}

}  // namespace lockstep::comms
