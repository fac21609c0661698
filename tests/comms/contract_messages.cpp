// Messages, queued work and groups of a group.
#include "comms/contract.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "comms/contract_buffers.h"

namespace lockstep::test {

namespace {

/// A message of a program that all ranks know.
struct Planned {
  int from;
  int to;
  int64_t count;
  int tag;
};

/// One rank's part of such a program: its messages, posted and waited for in orders of its own.
class Traffic {
 public:
  Traffic(Communicator& comm, const std::vector<Planned>& all) : comm_(comm) {
    for (const auto& one : all) {
      if (one.from != comm.rank() && one.to != comm.rank()) continue;
      planned_.push_back(one);
      data_.push_back(is_send(one) ? values(one.from, one.count, one.tag)
                                   : std::vector<float>(static_cast<size_t>(one.count)));
    }
    works_.resize(planned_.size());
  }

  size_t size() const { return planned_.size(); }
  size_t place_of(int tag) const {
    return static_cast<size_t>(
        std::find_if(planned_.begin(), planned_.end(), [&](const Planned& one) { return one.tag == tag; }) -
        planned_.begin());
  }
  /// Messages to or from one rank must be posted in their order.
  void post(size_t i) {
    const Planned& one = planned_[i];
    works_[i] =
        is_send(one) ? comm_.isend(data_[i], one.to, one.tag) : comm_.irecv(data_[i], one.from, one.tag);
  }
  void wait(size_t i) { works_[i].wait(); }
  bool test(size_t i) { return works_[i].is_completed(); }
  void drop(size_t i) { works_[i] = {}; }
  void check(Problems& problems, const std::string& what) const {
    for (size_t i = 0; i < size(); ++i) {
      expect(problems,
             fmt::format("{}: rank {} to {}, {} floats", what, planned_[i].from, planned_[i].to,
                         planned_[i].count),
             data_[i], [&](int64_t k) { return value(planned_[i].from, planned_[i].tag + k); });
    }
  }

 private:
  bool is_send(const Planned& one) const { return one.from == comm_.rank(); }

  Communicator& comm_;
  std::vector<Planned> planned_;
  std::vector<std::vector<float>> data_;
  std::vector<Work> works_;
};

using Random = std::minstd_rand;

std::vector<size_t> shuffled(size_t count, Random& random) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

/// Every rank sends to the next: posted and waited for in all orders, not the same on all ranks.
void check_rings(Communicator& comm, int64_t count, Problems& problems) {
  const int world = comm.world_size();
  std::vector<Planned> ring;
  for (int rank = 0; rank < world; ++rank) ring.push_back({rank, (rank + 1) % world, count, 3});
  for (unsigned order = 0; order < 16; ++order) {
    const auto bit = [&](unsigned k) {
      return (order >> (k + 2 * (static_cast<unsigned>(comm.rank()) % 2))) & 1U;
    };
    Traffic traffic(comm, ring);
    traffic.post(bit(0));
    traffic.post(1 - bit(0));
    traffic.wait(bit(1));
    traffic.wait(1 - bit(1));
    traffic.check(problems, fmt::format("ring of order {}", order));
  }
}

/// Everybody to everybody, in orders of their own; the last that was posted is waited for first.
void check_exchange(Communicator& comm, int64_t count, Problems& problems) {
  std::vector<Planned> all;
  for (int from = 0; from < comm.world_size(); ++from) {
    for (int to = 0; to < comm.world_size(); ++to) {
      if (from != to) all.push_back({from, to, count, from});
    }
  }
  Random random(static_cast<unsigned>(comm.rank() + 1));
  Traffic traffic(comm, all);
  auto order = shuffled(traffic.size(), random);
  for (const size_t i : order) traffic.post(i);
  for (auto i = order.rbegin(); i != order.rend(); ++i) traffic.wait(*i);
  traffic.check(problems, "exchange");
}

/// Some ranks are in a collective while others wait for messages to or from them.
void check_messages_in_collectives(Communicator& comm, int64_t count, Problems& problems) {
  std::vector<Planned> ring;
  for (int rank = 0; rank < comm.world_size(); ++rank)
    ring.push_back({rank, (rank + 1) % comm.world_size(), count, 4});
  for (const int parity : {0, 1}) {
    for (const bool reduces : {false, true}) {
      Traffic traffic(comm, ring);
      for (size_t i = 0; i < 2; ++i) traffic.post(i);
      auto data = values(comm.rank(), 100'000);
      const bool is_early = comm.rank() % 2 == parity;
      if (is_early) traffic.wait(0), traffic.wait(1);
      reduces ? comm.all_reduce(data) : comm.barrier();
      if (!is_early) traffic.wait(1), traffic.wait(0);
      traffic.check(problems, "during a collective");
      if (!reduces) continue;
      expect(problems, "all_reduce among messages", data,
             [&](int64_t i) { return sum_of(comm.world_size(), i); });
    }
  }
}

/// A rank waits for one peer's message while another peer's, posted later, must arrive first.
void check_detour(Communicator& comm, int64_t count, Problems& problems) {
  if (comm.world_size() < 3 || comm.rank() > 2) return;
  const std::vector<Planned> all = {{1, 0, count, 1}, {2, 0, count, 2}, {2, 1, count, 3}};
  Traffic traffic(comm, all);
  if (comm.rank() == 0) traffic.post(0), traffic.post(1), traffic.wait(0), traffic.wait(1);
  if (comm.rank() == 1) traffic.post(1), traffic.wait(1), traffic.post(0), traffic.wait(0);
  if (comm.rank() == 2) traffic.post(0), traffic.wait(0), traffic.post(1), traffic.wait(1);
  traffic.check(problems, "detour");
}

/// Any legal program comes to its end: here random ones, which all ranks know by their seed. An order of all
/// ranks' posts, waits and collectives in which nothing is awaited before both of its sides are posted; each
/// rank does its own part of it.
void check_random_program(Communicator& comm, unsigned seed, Problems& problems) {
  const int world = comm.world_size();
  Random random(seed);
  const auto pick = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  std::vector<Planned> all;
  for (size_t k = 0, messages = 4 + pick(20); k < messages; ++k) {
    const int from = static_cast<int>(pick(static_cast<size_t>(world)));
    const int to = (from + 1 + static_cast<int>(pick(static_cast<size_t>(world) - 1))) % world;
    constexpr std::array<int64_t, 6> kCounts = {0, 1, 120, 121, 5000, 100'000};
    all.push_back({from, to, kCounts[pick(kCounts.size())], static_cast<int>(k)});
  }
  Traffic traffic(comm, all);
  struct Sides {
    bool is_posted[2] = {false, false};
  };
  std::vector<Sides> sides(all.size());
  using Event = std::pair<size_t, int>;  // a message, 0 for its sender and 1 for its receiver
  std::vector<Event> to_post, to_wait;
  for (size_t i = 0; i < all.size(); ++i) {
    to_post.insert(to_post.end(), {{i, 0}, {i, 1}});
  }
  const auto is_own = [&](const Event& event) {
    const Planned& one = all[event.first];
    return (event.second == 0 ? one.from : one.to) == comm.rank();
  };
  while (!to_post.empty() || !to_wait.empty()) {
    if (pick(16) == 0) comm.barrier();
    if (to_wait.empty() || (!to_post.empty() && pick(2) == 0)) {
      const auto [chosen, side] = to_post[pick(to_post.size())];
      // The first of those that go the same way: they must be posted in order.
      const auto first =
          std::find_if(to_post.begin(), to_post.end(), [&, at = chosen, of = side](const Event& other) {
            return other.second == of && all[other.first].from == all[at].from &&
                   all[other.first].to == all[at].to;
          });
      const Event event = *first;
      to_post.erase(first);
      if (is_own(event)) traffic.post(traffic.place_of(all[event.first].tag));
      Sides& both = sides[event.first];
      both.is_posted[event.second] = true;
      if (both.is_posted[1 - event.second])
        to_wait.insert(to_wait.end(), {{event.first, 0}, {event.first, 1}});
      continue;
    }
    const size_t at = pick(to_wait.size());
    const Event event = to_wait[at];
    to_wait.erase(to_wait.begin() + static_cast<int64_t>(at));
    const size_t how = pick(4);
    if (!is_own(event)) continue;
    const size_t place = traffic.place_of(all[event.first].tag);
    if (how == 0 && event.second == 0) {
      traffic.drop(place);
    } else if (how == 1) {
      while (!traffic.test(place)) std::this_thread::yield();
    } else {
      traffic.wait(place);
    }
  }
  comm.barrier();  // what was dropped has arrived
  traffic.check(problems, fmt::format("program of seed {}", seed));
}

}  // namespace

Problems check_any_order(Communicator& comm) {
  Problems problems;
  if (comm.world_size() == 1) return problems;
  for (const int64_t count : {int64_t{1}, int64_t{100'000}}) {
    check_rings(comm, count, problems);
    check_exchange(comm, count, problems);
    check_detour(comm, count, problems);
    check_messages_in_collectives(comm, count, problems);
  }
  if (comm.world_size() <= 5) check_rings(comm, 1'000'000, problems);
  for (unsigned seed = 1; seed <= 20; ++seed) check_random_program(comm, seed, problems);
  return problems;
}

Problems check_messages(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  const int rank = comm.rank();
  if (world == 1) return problems;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300'000}}) {
    auto out = values(rank, count);
    std::vector<float> in(out.size());
    // Everybody sends before it receives: only works if both go on at once.
    const Work sent = comm.isend(out, comm.get_next_rank(), 5);
    const Work received = comm.irecv(in, comm.get_prev_rank(), 5);
    received.wait();
    sent.wait();
    expect(problems, fmt::format("round the ring, {}", count), in,
           [&](int64_t i) { return value(comm.get_prev_rank(), i); });
    if (rank == 0) {
      comm.send(out, 1, 6);
    } else if (rank == 1) {
      comm.recv(in, 0, 6);
      expect(problems, "blocking", in, [&](int64_t i) { return value(0, i); });
    }
  }
  // A message is sent while its sender does something else: here, waits for a word over the control plane.
  for (const Place place : {Place::kPrivate, Place::kShared}) {
    GuardedFloats out(comm, place, values(rank, 100'000));
    GuardedFloats in(comm, place, std::vector<float>(100'000));
    Work sent, received;
    if (rank == 0) sent = comm.isend(out, 1, 9);
    if (rank == 1) {
      received = comm.irecv(in, 0, 9);
      received.wait();
      expect(problems, "while the sender is elsewhere", in.content(problems, "received"),
             [&](int64_t i) { return value(0, i); });
    }
    comm.split(0);
    if (rank == 0) sent.wait();
  }
  // Several at once to one peer, and some that are awaited meanwhile: all go on while their ranks are
  // elsewhere.
  for (const Place place : {Place::kPrivate, Place::kShared}) {
    std::vector<GuardedFloats> outs, ins;
    std::vector<Work> works;
    for (int k = 0; k < 3; ++k) {
      outs.emplace_back(comm, place, values(rank, 40'000, k));
      ins.emplace_back(comm, place, std::vector<float>(40'000));
    }
    if (rank == 1) {
      for (auto& in : ins) works.push_back(comm.irecv(in, 0, 11));
    }
    comm.barrier();
    if (rank == 0) {
      for (int k = 0; k < 2; ++k) works.push_back(comm.isend(outs[static_cast<size_t>(k)], 1, 11));
      comm.send(outs[2], 1, 11);
    }
    comm.barrier();
    for (const auto& work : works) work.wait();
    for (int k = 0; rank == 1 && k < 3; ++k) {
      expect(problems, "several at once", ins[static_cast<size_t>(k)].content(problems, "several at once"),
             [&](int64_t i) { return value(0, k + i); });
    }
  }
  // A message that is held has no timeout of its own: whoever holds it may come back later.
  if (world == 2) {
    auto out = values(rank, 300'000);
    std::vector<float> in(out.size());
    Work held;
    if (rank == 0) held = comm.isend(out, 1, 12, {.timeout = std::chrono::milliseconds(50)});
    const auto later = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
    for (float goes_on = 1; goes_on > 0;) {
      goes_on = std::chrono::steady_clock::now() < later ? 1 : 0;
      comm.broadcast(std::span(&goes_on, 1));
    }
    if (rank == 1) comm.recv(in, 0, 12);
    if (rank == 1) expect(problems, "held", in, [&](int64_t i) { return value(0, i); });
    comm.barrier();
    held.wait();
  }
  // Messages that nobody waits for arrive all the same; buffers must only stay.
  auto dropped = values(rank, 200'000);
  std::vector<float> taken(dropped.size());
  comm.isend(dropped, comm.get_next_rank(), 8);
  comm.recv(taken, comm.get_prev_rank(), 8);
  expect(problems, "dropped", taken, [&](int64_t i) { return value(comm.get_prev_rank(), i); });
  comm.barrier();
  // Many in flight, in order, with a collective in between.
  std::vector<std::vector<float>> outs, ins(20, std::vector<float>(100));
  std::vector<Work> works;
  for (int k = 0; k < 20; ++k) outs.push_back(values(rank, 100, k));
  for (auto& in : ins) works.push_back(comm.irecv(in, comm.get_prev_rank()));
  comm.barrier();
  for (auto& out : outs) works.push_back(comm.isend(out, comm.get_next_rank()));
  for (const auto& work : works) work.wait();
  for (int k = 0; k < 20; ++k) {
    expect(problems, fmt::format("in order, {}", k), ins[static_cast<size_t>(k)],
           [&](int64_t i) { return value(comm.get_prev_rank(), k + i); });
  }
  return problems;
}

Problems check_async(Communicator& comm) {
  Problems problems;
  const int world = comm.world_size();
  std::vector<std::vector<float>> data;
  for (int k = 0; k < 10; ++k) data.push_back(values(comm.rank(), 1 + 7000 * (k % 3), k));
  std::vector<Work> works;
  works.reserve(data.size());
  for (auto& one : data) works.push_back(comm.iall_reduce(one));
  auto blocking = values(comm.rank(), 10);
  comm.all_reduce(blocking);  // after all that was queued
  for (const auto& work : works) {
    if (!work.is_completed()) problems.push_back("a blocking call has overtaken queued work");
    work.wait();
  }
  for (int k = 0; k < 10; ++k) {
    expect(problems, fmt::format("queued {}", k), data[static_cast<size_t>(k)],
           [&](int64_t i) { return sum_of(world, k + i); });
  }
  expect(problems, "blocking after queued", blocking, [&](int64_t i) { return sum_of(world, i); });
  comm.ibarrier().wait();
  return problems;
}

Problems check_split(Communicator& comm) {
  Problems problems;
  const int rank = comm.rank();
  auto halves = comm.split(rank % 2, -rank);  // in reversed order
  if (!halves) return {"split gave no group"};
  std::vector<float> data = {static_cast<float>(rank)};
  float wanted = 0;
  int members = 0;
  for (int other = rank % 2; other < comm.world_size(); other += 2) {
    wanted += static_cast<float>(other);
    ++members;
  }
  if (halves->world_size() != members) problems.push_back("a split group has the wrong size");
  for (int i = 0; i < 5; ++i) {
    data = {static_cast<float>(rank)};
    halves->all_reduce(data);
    expect(problems, "in a half", data, [&](int64_t) { return wanted; });
    std::vector<float> all = {1.0F};
    comm.all_reduce(all);
    expect(problems, "in the whole", all, [&](int64_t) { return static_cast<float>(comm.world_size()); });
  }
  data = {static_cast<float>(rank)};
  halves->broadcast(data, 0);  // the highest rank of the half comes first
  const int highest = rank % 2 + 2 * (members - 1);
  expect(problems, "order by key", data, [&](int64_t) { return static_cast<float>(highest); });
  if (comm.split(rank == 0 ? 0 : -1).has_value() != (rank == 0))
    problems.push_back("a negative colour is in a group");
  // Threads may split different groups at the same time, in any order on every rank.
  std::vector<Communicator> groups = {*comm.split(0), *comm.split(0)};
  std::vector<Problems> found(groups.size());
  std::vector<std::thread> threads;
  for (size_t k = 0; k < groups.size(); ++k) {
    threads.emplace_back([&, k] {
      try {
        for (int i = 0; i < 5; ++i) {
          auto part = groups[k].split(0, rank);
          auto sent = values(rank, 1000, static_cast<int64_t>(k));
          part->all_reduce(sent);
          expect(found[k], "in a group of a thread", sent,
                 [&](int64_t e) { return sum_of(comm.world_size(), e + static_cast<int64_t>(k)); });
        }
      } catch (const std::exception& error) {
        found[k].push_back(error.what());
      }
    });
  }
  for (size_t k = 0; k < groups.size(); ++k) {
    threads[k].join();
    problems.insert(problems.end(), found[k].begin(), found[k].end());
  }
  return problems;
}

}  // namespace lockstep::test
