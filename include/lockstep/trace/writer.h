#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "lockstep/trace/span.h"

/// Recording spans. Everything here may be called by any thread at any time, throws nothing but what is said,
/// and costs a load and a branch while tracing is off. While it is on, a span goes to a ring of the thread's
/// own, without lock or allocation.
///
///   static const trace::Name kOptimizer("optimizer");
///   trace::Scope scope(kOptimizer, {.call = step});
///   optimizer.step();
namespace lockstep::trace {

namespace detail {
extern std::atomic<uint32_t> session;  // The number of the session that records; 0 while tracing is off.
}

/// Whether spans are recorded.
inline bool enabled() {
  return detail::session.load(std::memory_order_relaxed) != 0;
}

/// A text, kept for the life of the process; equal texts give equal names. Making one takes a lock and
/// perhaps allocates: make it once, as a static, or for each step of a plan when the plan is first traced.
class Name {
 public:
  /// After kMostNames different texts every other one becomes "(too many names)".
  explicit Name(std::string_view text);

  std::string_view text() const;
  bool operator==(const Name&) const = default;

  static constexpr uint32_t kMostNames = 1 << 18;

 private:
  friend struct Event;
  explicit Name(uint32_t id) : id_(id) {}
  uint32_t id_;
};

/// What a span says beside its name and its times; see Span.
struct Details {
  Stream stream = Stream::kUser;
  int64_t bytes = 0;
  int peer = -1;
  int64_t call = -1;
};

namespace detail {
// Records a span if that session is still on.
void append(uint32_t in_session, Name name, int64_t begin_ns, int64_t end_ns, const Details& details);
}  // namespace detail

/// The rank of what this thread records from now on. Threads that do not say have the rank of the process,
/// Options::rank. Throws UsageError if negative.
void set_rank(int rank);

/// The clock of all spans: CLOCK_MONOTONIC in nanoseconds.
int64_t now_ns();

/// Records a span that is over. For steps that follow each other, or overlap: the end of one may be the begin
/// of the next, and one reading of the clock serves both.
inline void record(Name name, int64_t begin_ns, int64_t end_ns, const Details& details = {}) {
  const uint32_t session = detail::session.load(std::memory_order_relaxed);
  if (session != 0) [[unlikely]]
    detail::append(session, name, begin_ns, end_ns, details);
}

/// Records its own lifetime, unless tracing was off when it began or has been started or stopped since.
class Scope {
 public:
  explicit Scope(Name name, const Details& details = {})
      : session_(detail::session.load(std::memory_order_relaxed)) {
    if (session_ != 0) [[unlikely]]
      std::construct_at(&open_, name, details, now_ns());
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    if (session_ != 0) [[unlikely]]
      detail::append(session_, open_.name, open_.begin_ns, now_ns(), open_.details);
  }

 private:
  struct Open {
    Open(Name its_name, const Details& its_details, int64_t now_ns)
        : name(its_name), details(its_details), begin_ns(now_ns) {}
    Name name;
    Details details;
    int64_t begin_ns;
  };

  uint32_t session_;
  union {
    // Not even initialised while tracing is off. The name: clang-tidy takes the union's members for public.
    Open open_;  // NOLINT(readability-identifier-naming)
  };
};

}  // namespace lockstep::trace
