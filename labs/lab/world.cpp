#include "lab/world.h"

#include <fmt/format.h>

#include <cxxabi.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <system_error>
#include <thread>
#include <tuple>
#include <typeinfo>

namespace lab {

namespace {

/// Unwinds a rank whose world has come to its end. Not a std::exception, so that learners' handlers let it
/// pass.
struct Stopped {};

/// A rank did what no rank may.
struct Misuse {
  std::string problem, what;
};

constexpr int64_t kMostOperations = 300'000;

// What memory holds while a message is on its way into it: a NaN that no sum gives.
const float kPoison = std::bit_cast<float>(0x7fc0dead);

std::string floats_of(size_t count) {
  return counted(static_cast<int64_t>(count), "float");
}

/// Memory of a message that was started and not waited for.
struct InFlight {
  const float* data;
  size_t count;
  bool is_received;
  int peer;
};

struct Message {
  std::vector<float> data;
  double start_us = 0;  ///< When the sender's way out was free.
  double cost_us = 0;
  double end_us = 0;
  bool is_taken = false;  ///< Its receive has been asked for.
};

struct Receive {
  double asked_us = 0;
  size_t count = 0;
  std::shared_ptr<Message> message;
};

/// From one rank to another on one stream: what was sent and what was asked for, in order.
struct Channel {
  std::deque<std::shared_ptr<Message>> sent;
  std::deque<std::shared_ptr<Receive>> asked;
};

class World;

}  // namespace

/// A thread of the world: a rank's own code, or a body on its communication stream. One agent runs at a time.
class Agent {
 public:
  Agent(World& in_world, int of_rank, int on_stream, double starts_us)
      : world(in_world), rank(of_rank), stream(on_stream), now_us(starts_us) {}

  World& world;
  const int rank;
  const int stream;
  double now_us;
  bool is_done = false;
  int not_waited = 0;
  std::function<bool()> ready = {};  ///< Empty: it can go on.
  std::string waits = {};            ///< What for, for people.
  std::condition_variable turn = {};
  std::thread thread = {};
};

namespace {

class World {
 public:
  World(const WorldOptions& options, const std::function<void(Rank&)>& body)
      : options_(options), random_(options.seed), ranks_(static_cast<size_t>(options.world)) {
    const auto n = static_cast<size_t>(options.world);
    report_.bytes.assign(n, std::vector<int64_t>(n));
    report_.messages = report_.bytes;
    report_.done_us.assign(n, 0);
    for (int rank = 0; rank < options.world; ++rank) add_agent(rank, 0, 0, body);
  }

  Report run() {
    {
      std::unique_lock lock(mutex_);
      pass_on();
      finished_.wait(lock, [&] { return running_ == nullptr; });
    }
    join_those_done();
    if (report_.problem.empty()) tell_what_is_left();
    for (const double done : report_.done_us) report_.time_us = std::max(report_.time_us, done);
    return std::move(report_);
  }

  int world_size() const { return options_.world; }

  Work send(Agent& self, std::span<const float> data, int to) {
    enter(self);
    check_peer(self, "sends to", to);
    const auto flight = take_off(self, {data.data(), data.size(), false, to});
    const auto message = std::make_shared<Message>();
    message->data.assign(data.begin(), data.end());
    auto& out_us = ranks_[static_cast<size_t>(self.rank)].out_us;
    message->start_us = std::max(self.now_us, out_us);
    message->cost_us = options_.latency_us + static_cast<double>(data.size_bytes()) * options_.us_per_byte;
    message->end_us = out_us = message->start_us + message->cost_us;
    report_.bytes[static_cast<size_t>(self.rank)][static_cast<size_t>(to)] +=
        static_cast<int64_t>(data.size_bytes());
    ++report_.messages[static_cast<size_t>(self.rank)][static_cast<size_t>(to)];
    auto& channel = channels_[{self.rank, to, self.stream}];
    channel.sent.push_back(message);
    match(channel, self.rank, to);
    event(self, Event::Kind::kSend, to, data, message->start_us, message->end_us);
    ++self.not_waited;
    return Work([this, &self, data, to, message, flight] {
      --self.not_waited;
      const Landing landing{ranks_[static_cast<size_t>(self.rank)].in_flight, flight};
      if (options_.rendezvous) {
        block(
            self, [message] { return message->is_taken; },
            fmt::format("in send to rank {} ({})", to, floats_of(data.size())));
      }
      if (!std::equal(data.begin(), data.end(), message->data.begin(),
                      [](float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; })) {
        throw Misuse{
            "buffer changed",
            fmt::format("rank {} changed {} that it was still sending to rank {}: such memory must stay as "
                        "it is until wait()",
                        self.rank, floats_of(data.size()), to)};
      }
      self.now_us = std::max(self.now_us, message->end_us);
    });
  }

  Work receive(Agent& self, std::span<float> data, int from) {
    enter(self);
    check_peer(self, "receives from", from);
    const auto flight = take_off(self, {data.data(), data.size(), true, from});
    std::fill(data.begin(), data.end(), kPoison);
    const auto receive = std::make_shared<Receive>(Receive{self.now_us, data.size(), nullptr});
    auto& channel = channels_[{from, self.rank, self.stream}];
    channel.asked.push_back(receive);
    match(channel, from, self.rank);
    ++self.not_waited;
    return Work([this, &self, data, from, receive, flight] {
      --self.not_waited;
      const Landing landing{ranks_[static_cast<size_t>(self.rank)].in_flight, flight};
      block(
          self, [receive] { return receive->message != nullptr; },
          fmt::format("in recv from rank {} ({})", from, floats_of(data.size())));
      const Message& message = *receive->message;
      std::copy(message.data.begin(), message.data.end(), data.begin());
      auto& in_us = ranks_[static_cast<size_t>(self.rank)].in_us;
      const double end_us = std::max({receive->asked_us, message.end_us, in_us + message.cost_us});
      in_us = end_us;
      self.now_us = std::max(self.now_us, end_us);
      event(self, Event::Kind::kRecv, from, data, receive->asked_us, end_us);
    });
  }

  void compute(Agent& self, double us) {
    enter(self);
    const double start_us = self.now_us;
    self.now_us += us;
    event(self, Event::Kind::kCompute, -1, {}, start_us, self.now_us);
  }

  void note(Agent& self, const std::string& text) {
    if (!options_.keep_events) return;
    report_.events.push_back(
        {self.rank, self.stream, Event::Kind::kNote, -1, 0, -1, self.now_us, self.now_us, text});
  }

  void watch(const Agent& self, std::span<const float> data) {
    ranks_[static_cast<size_t>(self.rank)].watched = data;
  }

  Work start(Agent& self, std::function<void(Rank&)> body) {
    enter(self);
    auto& rank = ranks_[static_cast<size_t>(self.rank)];
    join_those_done();
    Agent* const before = rank.last_started;
    Agent& agent = add_agent(self.rank, 1, self.now_us, std::move(body));
    if (before != nullptr) {
      agent.ready = [before] { return before->is_done; };
      agent.waits = "for what was started before";
      rank.after[&agent] = before;
    }
    rank.last_started = &agent;
    ++self.not_waited;
    enter(self);  // it may run at once
    return Work([this, &self, &agent] {
      --self.not_waited;
      block(
          self, [&agent] { return agent.is_done; }, "for what it started itself");
      self.now_us = std::max(self.now_us, agent.now_us);
    });
  }

 private:
  struct RankState {
    double out_us = 0;  ///< When its way out is free.
    double in_us = 0;
    Agent* last_started = nullptr;
    std::map<Agent*, Agent*> after = {};  ///< The body that a body on the communication stream comes after.
    std::span<const float> watched = {};
    std::list<InFlight> in_flight = {};
  };
  /// Ends a message's claim on its memory.
  struct Landing {
    std::list<InFlight>& all;
    std::list<InFlight>::iterator flight;
    ~Landing() { all.erase(flight); }
  };

  /// Memory that is being received into is no other message's; sends may share what they read.
  std::list<InFlight>::iterator take_off(const Agent& self, const InFlight& flight) {
    auto& all = ranks_[static_cast<size_t>(self.rank)].in_flight;
    const auto overlaps = [&](const InFlight& other) {
      return (flight.is_received || other.is_received) && flight.count > 0 && other.count > 0 &&
             flight.data < other.data + other.count && other.data < flight.data + flight.count;
    };
    const auto described = [](const InFlight& one) {
      return fmt::format("{} rank {}", one.is_received ? "a receive from" : "a send to", one.peer);
    };
    if (const auto other = std::find_if(all.begin(), all.end(), overlaps); other != all.end()) {
      throw Misuse{"buffer in flight",
                   fmt::format("rank {} started {} in memory of {} that it had not waited for", self.rank,
                               described(flight), described(*other))};
    }
    return all.insert(all.end(), flight);
  }

  /// Threads that are over keep their stacks until they are joined.
  void join_those_done() {
    for (auto& agent : agents_) {
      if (agent->is_done && agent->thread.joinable()) agent->thread.join();
    }
  }

  Agent& add_agent(int rank, int stream, double now_us, std::function<void(Rank&)> body) {
    Agent& agent = *agents_.emplace_back(std::make_unique<Agent>(*this, rank, stream, now_us));
    try {
      agent.thread = std::thread([this, &agent, body = std::move(body)] { live(agent, body); });
    } catch (const std::system_error&) {  // too many threads: nobody would wait for one that never began
      agents_.pop_back();
      throw;
    }
    return agent;
  }

  /// A thread's whole life: waits for its first turn, runs, passes the turn on.
  void live(Agent& self, const std::function<void(Rank&)>& body) {
    std::unique_lock lock(mutex_);
    self.turn.wait(lock, [&] { return running_ == &self; });
    self.ready = nullptr;
    lock.unlock();
    std::string problem, what;
    try {
      auto& after = ranks_[static_cast<size_t>(self.rank)].after;
      if (const auto before = after.find(&self); before != after.end())
        self.now_us = std::max(self.now_us, before->second->now_us);
      Rank rank(self);
      tell(self);
      if (!is_stopping_) body(rank);
      if (self.not_waited > 0 && !is_stopping_) {
        throw Misuse{"never waited",
                     fmt::format("rank {} ended with {} started {} for which it never called wait()",
                                 self.rank, self.not_waited, self.not_waited == 1 ? "message" : "messages")};
      }
    } catch (const Stopped&) {
    } catch (const Misuse& misuse) {
      problem = misuse.problem;
      what = misuse.what;
    } catch (...) {
      problem = "exception";
      what = fmt::format("rank {} threw: {}", self.rank, describe_exception());
    }
    lock.lock();
    if (!problem.empty()) stop(problem, what);
    self.is_done = true;
    auto& done_us = report_.done_us[static_cast<size_t>(self.rank)];
    done_us = std::max(done_us, self.now_us);
    pass_on();
  }

  /// Draws who goes on. The caller holds the mutex and the turn.
  void pass_on() {
    std::vector<Agent*> can;
    bool all_done = true;
    for (const auto& agent : agents_) {
      if (agent->is_done) continue;
      all_done = false;
      if (is_stopping_ || !agent->ready || agent->ready()) can.push_back(agent.get());
    }
    if (all_done) {
      running_ = nullptr;
      finished_.notify_one();
      return;
    }
    if (can.empty()) {
      std::string what;
      for (const auto& agent : agents_) {
        if (!agent->is_done)
          what += fmt::format("{}rank {} {}", what.empty() ? "" : "; ", agent->rank, agent->waits);
      }
      for (int rank = 0; rank < options_.world; ++rank) {
        if (agents_[static_cast<size_t>(rank)]->is_done) what += fmt::format("; rank {} is done", rank);
      }
      stop("deadlock", what);
      pass_on();
      return;
    }
    running_ = can[std::uniform_int_distribution<size_t>(0, can.size() - 1)(random_)];
    running_->turn.notify_one();
  }

  void stop(const std::string& problem, const std::string& what) {
    if (report_.problem.empty()) {
      report_.problem = problem;
      report_.what = what;
    }
    is_stopping_ = true;
  }

  /// Lets others go on until `ready`.
  void block(Agent& self, std::function<bool()> ready, std::string waits) {
    if (std::this_thread::get_id() != self.thread.get_id()) {
      throw Misuse{"wrong stream", fmt::format("rank {}: what it started used the rank's own Rank, or waited "
                                               "for its Work, instead of the Rank that it is called with",
                                               self.rank)};
    }
    std::unique_lock lock(mutex_);
    if (is_stopping_) throw Stopped{};
    self.ready = std::move(ready);
    self.waits = std::move(waits);
    pass_on();
    self.turn.wait(lock, [&] { return running_ == &self; });
    self.ready = nullptr;
    if (is_stopping_) throw Stopped{};
    tell(self);
  }

  void tell(const Agent& self) const {
    tell_progress(fmt::format("rank {} of {}, seed {}", self.rank, options_.world, options_.seed),
                  options_.world);
  }

  /// Every call of a rank is a moment at which another may run.
  void enter(Agent& self) {
    if (++operations_ > kMostOperations) {
      throw Misuse{"endless",
                   fmt::format("after {} calls the ranks were still going on: a loop that does not end",
                               operations_ - 1)};
    }
    block(
        self, [] { return true; }, "to go on");
  }

  void check_peer(const Agent& self, const char* verb, int peer) const {
    if (peer < 0 || peer >= options_.world) {
      throw Misuse{"wrong rank", fmt::format("rank {} {} rank {}, but ranks go from 0 to {}", self.rank, verb,
                                             peer, options_.world - 1)};
    }
    if (peer == self.rank) throw Misuse{"wrong rank", fmt::format("rank {} {} itself", self.rank, verb)};
  }

  void match(Channel& channel, int from, int to) {
    while (!channel.sent.empty() && !channel.asked.empty()) {
      const auto message = channel.sent.front();
      const auto receive = channel.asked.front();
      channel.sent.pop_front();
      channel.asked.pop_front();
      if (message->data.size() != receive->count) {
        throw Misuse{"wrong size", fmt::format("rank {} sent {} to rank {}, which asked for {}", from,
                                               floats_of(message->data.size()), to, receive->count)};
      }
      if (options_.rendezvous)
        message->end_us = std::max(message->start_us, receive->asked_us) + message->cost_us;
      message->is_taken = true;
      receive->message = message;
    }
  }

  void event(const Agent& self, Event::Kind kind, int peer, std::span<const float> data, double start_us,
             double end_us) {
    if (!options_.keep_events) return;
    const auto watched = ranks_[static_cast<size_t>(self.rank)].watched;
    const bool is_inside =
        !watched.empty() && data.data() >= watched.data() && data.data() < watched.data() + watched.size();
    report_.events.push_back({self.rank, self.stream, kind, peer, static_cast<int64_t>(data.size()),
                              is_inside ? data.data() - watched.data() : -1, start_us, end_us});
  }

  void tell_what_is_left() {
    for (const auto& [ends, channel] : channels_) {
      if (channel.sent.empty()) continue;
      report_.problem = "never received";
      report_.what = fmt::format("rank {} sent {} to rank {}, which never asked for that", std::get<0>(ends),
                                 floats_of(channel.sent.front()->data.size()), std::get<1>(ends));
      return;
    }
  }

  const WorldOptions options_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::vector<RankState> ranks_;
  std::map<std::tuple<int, int, int>, Channel> channels_;
  Agent* running_ = nullptr;
  bool is_stopping_ = false;
  int64_t operations_ = 0;
  Report report_;
};

}  // namespace

void Work::wait() {
  if (const auto wait = std::exchange(wait_, nullptr)) wait();
}

int Rank::rank() const {
  return agent_.rank;
}
int Rank::world_size() const {
  return agent_.world.world_size();
}
void Rank::send(std::span<const float> data, int to) {
  isend(data, to).wait();
}
void Rank::recv(std::span<float> data, int from) {
  irecv(data, from).wait();
}
Work Rank::isend(std::span<const float> data, int to) {
  return agent_.world.send(agent_, data, to);
}
Work Rank::irecv(std::span<float> data, int from) {
  return agent_.world.receive(agent_, data, from);
}
void Rank::compute(double us) {
  agent_.world.compute(agent_, us);
}
double Rank::now_us() const {
  return agent_.now_us;
}
Work Rank::start(std::function<void(Rank&)> body) {
  return agent_.world.start(agent_, std::move(body));
}
void Rank::note(const std::string& text) {
  agent_.world.note(agent_, text);
}
void Rank::watch(std::span<const float> data) {
  agent_.world.watch(agent_, data);
}

int64_t Report::sent_bytes(int rank) const {
  const auto& row = bytes[static_cast<size_t>(rank)];
  return std::accumulate(row.begin(), row.end(), int64_t{0});
}

int64_t Report::received_bytes(int rank) const {
  int64_t sum = 0;
  for (const auto& row : bytes) sum += row[static_cast<size_t>(rank)];
  return sum;
}

int64_t Report::sent_messages(int rank) const {
  const auto& row = messages[static_cast<size_t>(rank)];
  return std::accumulate(row.begin(), row.end(), int64_t{0});
}

Report run_world(const WorldOptions& options, const std::function<void(Rank&)>& body) {
  return World(options, body).run();
}

std::string first_words(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find("\nException raised from"));
}

void refuse(const std::string& problem, const std::string& what) {
  throw Misuse{problem, what};
}

size_t heap_bytes() {
  return mallinfo2().uordblks;
}

std::string counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string describe_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return first_words(error);
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text;
  } catch (int value) {
    return fmt::format("the int {}", value);
  } catch (double value) {
    return fmt::format("the double {}", value);
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    char* const name =
        type != nullptr ? abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr) : nullptr;
    const std::string text = fmt::format("a value of type {}", name != nullptr ? name : "that is not known");
    std::free(name);
    return text;
  }
}

Progress& progress() {
  static Progress* const page = [] {
    void* const shared =
        mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static Progress own;
    return shared == MAP_FAILED ? &own : new (shared) Progress;
  }();
  return *page;
}

void tell_progress(const std::string& text, int world) {
  progress().world = world;
  std::strncpy(progress().text, text.c_str(), sizeof(Progress::text) - 1);
}

}  // namespace lab
