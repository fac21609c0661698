#include "lockstep/trace/session.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/trace/file.h"
#include "lockstep/trace/json.h"
#include "lockstep/trace/writer.h"
#include "trace/json_text.h"
#include "trace/ring.h"

namespace lockstep::trace {

constinit std::atomic<uint32_t> detail::session = 0;

namespace {

int64_t read_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// All that a session has; empty while tracing is off, but for the last three.
struct State {
  struct Lent {
    std::shared_ptr<Ring> ring;
    bool in_use;
  };

  Options options;
  std::filesystem::path folder;  // Where stop() writes; empty unless the environment names one.
  int64_t clock_offset_ns = 0;
  int64_t monotonic_ns = 0;
  int64_t wall_ns = 0;
  std::vector<Lent> rings;
  std::map<int, int64_t> ranks;  // The session's ranks; spans of each that no ring could take.

  std::mutex mutex;
  uint32_t last_session = 0;
  pid_t process = 0;  // Who started the session; a forked child must not write its files.
  bool writes_at_exit = false;
};

State& state() {
  static State& state = *new State;  // Never destroyed: threads may still write while the process ends.
  return state;
}

/// What a thread needs to append: trivial, so that reading it costs no check.
struct Writer {
  Ring* ring = nullptr;
  uint32_t session = 0;  // The ring's.
  int rank = -1;         // As set_rank said; -1: the process's.
  bool ended = false;
};
constinit thread_local Writer writer;

/// Keeps the thread's ring alive, and gives it back when the thread ends.
struct Lease {
  std::shared_ptr<Ring> ring;

  // The lock is held.
  void give_back() {
    for (State::Lent& lent : state().rings) {
      if (lent.ring == ring) lent.in_use = false;
    }
    ring.reset();
    writer.session = 0;
  }

  ~Lease() {
    const std::lock_guard lock(state().mutex);
    give_back();
    writer.ended = true;
  }
};

/// A ring of this thread's rank that no thread uses, or else a new one. The lock is held.
std::shared_ptr<Ring> lend(int rank) {
  for (State::Lent& lent : state().rings) {
    if (lent.in_use || lent.ring->rank() != rank) continue;
    lent.in_use = true;
    return lent.ring;
  }
  const auto capacity = static_cast<size_t>(state().options.most_spans_per_thread);
  state().rings.push_back({std::make_shared<Ring>(rank, capacity), true});
  return state().rings.back().ring;
}

/// Gets this thread a ring of the session; false if it is over, or if there is none to be had.
bool take_ring(uint32_t session) {
  const std::lock_guard lock(state().mutex);
  if (detail::session.load(std::memory_order_relaxed) != session) return false;
  const int rank = writer.rank >= 0 ? writer.rank : state().options.rank;
  int64_t& lost = state().ranks[rank];
  if (writer.ended) {
    ++lost;
    return false;
  }
  thread_local Lease lease;
  lease.give_back();
  try {
    lease.ring = lend(rank);
  } catch (const std::bad_alloc&) {
    ++lost;
    return false;
  }
  writer.ring = lease.ring.get();
  writer.session = session;
  return true;
}

std::string host_name() {
  std::string name(256, '\0');
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.c_str();
}

/// The lock is held.
void begin(const Options& options) {
  constexpr int64_t kMostSpans = int64_t{1} << 30;
  if (options.rank < 0) throw UsageError(fmt::format("trace: rank {} is negative", options.rank));
  if (options.most_spans_per_thread < 1 || options.most_spans_per_thread > kMostSpans) {
    throw UsageError(fmt::format("trace: most_spans_per_thread {} is not between 1 and {}",
                                 options.most_spans_per_thread, kMostSpans));
  }
  State& now = state();
  now.options = options;
  now.folder.clear();
  now.clock_offset_ns = 0;
  now.monotonic_ns = now_ns();
  now.wall_ns = read_clock(CLOCK_REALTIME);
  now.rings.clear();
  now.ranks = {{options.rank, 0}};
  now.process = getpid();
  detail::session.store(++now.last_session, std::memory_order_relaxed);
}

/// The lock is held.
Trace read_rings() {
  const State& now = state();
  Trace trace;
  std::map<int, int64_t> dropped = now.ranks;
  for (const State::Lent& lent : now.rings) dropped[lent.ring->rank()] += lent.ring->read(trace.spans);
  const std::string host = host_name();
  for (const auto& [rank, count] : dropped) {
    trace.ranks.push_back({.rank = rank,
                           .host = host,
                           .job = now.options.job,
                           .clock_offset_ns = now.clock_offset_ns,
                           .monotonic_ns = now.monotonic_ns,
                           .wall_ns = now.wall_ns,
                           .dropped = count});
  }
  sort(trace);
  return trace;
}

void write_ranks(const std::filesystem::path& folder, const Trace& trace) {
  for (const RankRecord& rank : trace.ranks) {
    Trace own{.ranks = {rank}};
    std::ranges::copy_if(trace.spans, std::back_inserter(own.spans),
                         [&](const Span& span) { return span.rank == rank.rank; });
    write_file(folder / fmt::format("rank_{}.json", rank.rank), to_json(own));
  }
}

void stop_at_exit() {
  if (state().process != getpid()) return;  // in a forked child the lock may be held for ever
  try {
    stop();
  } catch (const std::exception& error) {
    // Nobody is left to catch it.
    std::fprintf(stderr, "lockstep: %s\n", error.what());
  }
}

}  // namespace

void set_rank(int rank) {
  if (rank < 0) throw UsageError(fmt::format("trace: rank {} is negative", rank));
  if (writer.rank == rank) return;
  writer.rank = rank;
  writer.session = 0;  // A ring has one rank: take another.
}

int64_t now_ns() {
  return read_clock(CLOCK_MONOTONIC);
}

void detail::append(uint32_t in_session, Name name, int64_t begin_ns, int64_t end_ns,
                    const Details& details) {
  if (session.load(std::memory_order_relaxed) != in_session) return;
  if (writer.session != in_session && !take_ring(in_session)) return;
  writer.ring->append(Event::of(name, begin_ns, end_ns, details));
}

void start(const Options& options) {
  const std::lock_guard lock(state().mutex);
  if (enabled()) throw UsageError("trace: started twice; hint: stop() first");
  begin(options);
}

Trace collect() {
  const std::lock_guard lock(state().mutex);
  return enabled() ? read_rings() : Trace{};
}

Trace stop() {
  Trace trace;
  std::filesystem::path folder;
  {
    const std::lock_guard lock(state().mutex);
    if (!enabled()) return trace;
    detail::session.store(0, std::memory_order_relaxed);
    trace = read_rings();
    folder = std::exchange(state().folder, {});
    state().rings.clear();
    state().ranks.clear();
    if (state().process != getpid()) folder.clear();
  }
  if (!folder.empty()) write_ranks(folder, trace);
  return trace;
}

bool start_from_environment(int rank) {
  const char* value = std::getenv("LOCKSTEP_TRACE");
  if (value == nullptr || *value == '\0') return false;
  std::error_code failure;
  const std::filesystem::path folder = std::filesystem::absolute(value, failure);
  if (!failure) std::filesystem::create_directories(folder, failure);
  if (!failure && access(folder.c_str(), W_OK | X_OK) != 0) failure.assign(errno, std::generic_category());
  if (failure) {
    throw UsageError(fmt::format("trace: LOCKSTEP_TRACE={}: {}; hint: name a folder that you may write",
                                 shown(value), failure.message()));
  }

  set_rank(rank);
  const std::lock_guard lock(state().mutex);
  if (!enabled()) {
    const char* job = std::getenv("LOCKSTEP_JOB_ID");
    begin({.rank = rank, .job = job == nullptr ? "" : job});
  }
  state().ranks.try_emplace(rank, 0);
  state().folder = folder;
  if (!std::exchange(state().writes_at_exit, true)) std::atexit(stop_at_exit);
  return true;
}

void set_clock_offset_ns(int64_t offset_ns) {
  if (offset_ns < -kLargest || offset_ns > kLargest) {
    throw UsageError(fmt::format("trace: clock offset {} ns is not within {} ns", offset_ns, kLargest));
  }
  const std::lock_guard lock(state().mutex);
  state().clock_offset_ns = offset_ns;
}

}  // namespace lockstep::trace
