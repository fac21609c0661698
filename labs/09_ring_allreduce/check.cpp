#include "09_ring_allreduce/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "lab/calls.h"
#include "lab/collectives.h"
#include "lab/sums.h"

namespace lab::ring {

namespace {

using Function = void(Rank&, std::span<float>);

/// A call of the learner's function.
struct Case {
  int world = 0;
  size_t count = 0;  ///< Floats.
};

/// What a call left.
struct Left {
  Report report;
  CountedBuffers buffers;
};

/// Worlds and sizes that the text names. A world begins with three floats a chunk: they show what was done;
/// and 3 ranks come first: with 2, whole buffers are no more bytes than chunks.
std::vector<Case> known_cases(const Checker& checker) {
  std::vector<Case> all;
  for (const int world : checker.worlds({1, 3, 2, 4, 5, 6, 7, 8})) {
    const auto n = static_cast<size_t>(world);
    for (const size_t count : {3 * n, n, n + 1, size_t{1000}, size_t{0}, size_t{1}, n - 1})
      all.push_back({world, count});
  }
  return all;
}

/// Drawn ones; the last has chunks of more floats than 16 bits count.
std::vector<Case> fresh_cases(const Checker& checker) {
  std::vector<Case> all;
  const auto add = [&](int world, int64_t low, int64_t high) {
    const auto salt = static_cast<uint64_t>(world) + all.size();
    all.push_back({world, static_cast<size_t>(checker.draw_between(salt, low, high))});
  };
  for (const int world : checker.fresh_worlds(2, 9, 33)) {
    add(world, world, 499);
    add(world, 1, 2 * world);
    add(world, 4097, 9999);
  }
  add(checker.worlds({3}).front(), 200'000, 210'000);
  return all;
}

Left run_case(Checker& checker, const Case& one, Function* function) {
  Left left{{}, CountedBuffers::make(one.world, one.count)};
  const bool is_small = one.world <= 8 && one.count <= 3 * static_cast<size_t>(one.world);
  left.report =
      run_world({.world = one.world, .seed = checker.seed(), .keep_events = is_small}, [&](Rank& rank) {
        rank.watch(left.buffers.of(rank.rank()));
        function(rank, left.buffers.of(rank.rank()));
      });
  return left;
}

std::string described(const Case& one) {
  return fmt::format("{} on {}", counted(static_cast<int64_t>(one.count), "float"),
                     counted(one.world, "rank"));
}

/// Problems of a run that a ring has for reasons of its own.
std::optional<Failure> judge_problem(const Report& report) {
  if (report.problem == "buffer in flight")
    return Failure{
        report.problem, report.what,
        "A message owns its memory until wait(). Either a send of an earlier step was not waited for, "
        "or the chunks of one step are the wrong ones: rank r sends chunk r - s - 1 and receives chunk "
        "r - s - 2, wrapped around below 0 too, with a vector of its own for what arrives."};
  if (report.problem == "wrong size")
    return Failure{
        report.problem, report.what,
        "The two ends of a message must agree on its length. What rank r receives in step s is what "
        "rank r - 1 sends in step s, chunk (r - 1) - s - 1 = r - s - 2; so long must the memory for "
        "it be, and each rank's own: ranks share what is static."};
  return std::nullopt;
}

/// What a wrong element's contributions say.
std::string meaning_of(const WrongElement& wrong) {
  if (wrong.counts.empty() && wrong.world <= 8)
    return "It is not made of whole contributions, as a sum is. What is done with what arrives: is it added, "
           "with "
           "nothing else, and to the chunk that it belongs to?";
  if (wrong.is_untouched())
    return "This element is as it was before: nothing was added to it, and no complete chunk replaced it. Is "
           "one "
           "of the loops too short, over steps or over elements? Which chunk is complete on which rank when "
           "the "
           "second half begins?";
  if (std::accumulate(wrong.counts.begin(), wrong.counts.end(), 0) == 1)
    return "One contribution alone is left. Either what arrived in the first half replaced yours in place of "
           "being added (recv writes over what was there: receive into a vector of its own), or the second "
           "half "
           "passes on a chunk that is not complete: the first that rank r sends is chunk r.";
  return "Follow one chunk: which rank adds to it in which step? In step s rank r sends chunk r - s - 1 and "
         "adds "
         "to chunk r - s - 2.";
}

std::optional<Failure> judge_repeats(const WrongElement& wrong, const std::string& what) {
  if (!wrong.has_repeats()) return std::nullopt;
  const bool is_lost = std::ranges::count(wrong.counts, 0) > 0;
  return Failure{"counted twice", what,
                 is_lost
                     ? "A contribution was added more than once, and another one is lost. recv writes over "
                       "what was there: receive into a vector of its own, and add that once."
                     : "A contribution was added more than once. In the first half a rank adds to another "
                       "chunk in each step; in the second half the chunks that arrive are complete: they "
                       "replace yours."};
}

/// `is_first`: no call with more than one rank was right before.
std::optional<Failure> judge_sums(const Case& one, const Left& left, bool is_first) {
  const auto& buffers = left.buffers;
  if (!buffers.damage().empty())
    return Failure{"wrote outside", described(one) + ": " + buffers.damage(),
                   "Memory beyond the buffer belongs to somebody else. Where does your last chunk end?"};
  const auto wrong = buffers.first_wrong();
  if (!wrong) return std::nullopt;
  const auto what = described(one) + ": " + wrong->text();
  if (one.world > 1 && left.report.sent_messages(0) == 0)
    return Failure{"nothing added", what,
                   is_first
                       ? "The buffer is as it was. Start with the reduce-scatter, steps 0 to P - 2."
                       : "Rank 0 sent nothing here, though other worlds and sizes were right before. Which "
                         "condition leaves this one out? A ring works for any number of ranks and floats."};
  const size_t even = one.count / static_cast<size_t>(one.world) * static_cast<size_t>(one.world);
  if (wrong->is_untouched() && even > 0 && wrong->element >= even)
    return Failure{
        "tail left out", what,
        fmt::format("The first {} elements are right, the last {} were left out: {} elements do not "
                    "divide by {} ranks. Cut them with chunk_begin, some chunks one longer.",
                    even, one.count - even, one.count, one.world)};
  if (std::isnan(wrong->found))
    return Failure{
        "read too early", what,
        "Memory that a message is to be received into holds NaNs until wait() has returned. Where do "
        "you read it before that?"};
  if (const auto operation = buffers.other_operation(wrong->rank); !operation.empty())
    return Failure{
        operation + " instead of the sum", what,
        fmt::format("Every element holds the {} of all contributions. Add them, and nothing else: no "
                    "division, no comparison.",
                    operation)};
  if (auto failure = judge_repeats(*wrong, what)) return failure;
  return Failure{"wrong sum", what, meaning_of(*wrong)};
}

/// One chunk a step, to the next rank alone.
std::optional<Failure> judge_bytes(const Case& one, const Report& report) {
  const int world = one.world;
  const auto n = static_cast<size_t>(world);
  const size_t chunk = (one.count + n - 1) / n;
  const int64_t steps = 2 * (world - 1), most = steps * static_cast<int64_t>(4 * chunk);
  for (int r = 0; r < world; ++r) {
    const auto& messages = report.messages[static_cast<size_t>(r)];
    for (int to = 0; to < world; ++to) {
      if (to != (r + 1) % world && messages[static_cast<size_t>(to)] > 0)
        return Failure{"not a ring",
                       fmt::format("{}: rank {} sent {} bytes to rank {}", described(one), r,
                                   report.bytes[static_cast<size_t>(r)][static_cast<size_t>(to)], to),
                       "In this ring a rank sends to the next one, rank + 1, and to nobody else."};
    }
    // Of a buffer with fewer floats than ranks some chunks are empty: those need not be sent.
    const auto sent = report.sent_messages(r);
    const bool is_short = report.sent_bytes(r) <= most;
    if (sent > steps || (sent < steps && one.count >= n && is_short))
      return Failure{"wrong steps",
                     fmt::format("{}: rank {} sent {}, expected 2(P-1) = {}", described(one), r,
                                 counted(sent, "message"), steps),
                     "P - 1 steps of reduce-scatter and P - 1 of all-gather, one message in each."};
    if (!is_short)
      return Failure{
          "whole buffer sent",
          fmt::format("{}: rank {} sent {} bytes; 2(P-1) chunks of at most {} are {}", described(one), r,
                      report.sent_bytes(r), counted(static_cast<int64_t>(chunk), "float"), most),
          "Send one chunk in a step. Whole buffers going round make every rank send up to (P-1) S "
          "bytes: more than the naive way."};
  }
  return std::nullopt;
}

/// An all-reduce is called in every step of a training.
void expect_nothing_kept(Checker& checker, Function* function) {
  const Case one = {checker.worlds({3})[0], 1000};
  const int64_t kept =
      checker.in_child([&] { return kept_bytes([&] { run_case(checker, one, function); }); });
  checker.expect(kept < 8 * 1000, "memory kept",
                 fmt::format("{}: 8 calls left {} bytes more on the heap", described(one), kept),
                 "Something grows with every call: a static or global list, or memory that is never freed.");
}

/// Every rank ends with every contribution once, everywhere, and sends no more than it must.
void check_sums(const Seam& seam, Checker& checker) {
  bool is_first = true;
  const auto run = [&](const Case& one) { return run_case(checker, one, seam.ring_all_reduce); };
  const auto judge = [&](const Case& one, const Left& left) {
    if (!left.report.problem.empty()) return judge_problem(left.report);
    auto failure = judge_sums(one, left, is_first);
    if (!failure) failure = judge_bytes(one, left.report);
    if (!failure && one.world > 1) is_first = false;
    if (!failure && one.world == checker.worlds({4})[0] && one.count == 12) checker.show(left.report);
    return failure;
  };
  judge_calls(checker, known_cases(checker), run, judge);
  checker.proved("every rank holds every contribution once, for 1 to 8 ranks and sizes that do not divide");
  judge_calls(checker, fresh_cases(checker), run, judge);
  checker.proved("the same for worlds and sizes drawn from the seed, above 8 ranks and 65536 floats");
  checker.proved("a rank sends 2(P-1) chunks, 2(P-1)/P of the data, to its next rank alone");
  expect_nothing_kept(checker, seam.ring_all_reduce);
}

/// Runs `count` floats on `world` ranks, in a child.
struct Run {
  Report report;
  std::vector<std::vector<float>> data;  ///< By rank.
};
Run run_ring(const Seam& seam, Checker& checker, const WorldOptions& options, Run run) {
  checker.in_world(options.world);
  return checker.in_child([&] {
    run.report = checker.run(
        options, [&](Rank& rank) { seam.ring_all_reduce(rank, run.data[static_cast<size_t>(rank.rank())]); });
    return run;
  });
}
Run ones(int world, size_t count) {
  return {{}, std::vector<std::vector<float>>(static_cast<size_t>(world), std::vector<float>(count, 1))};
}

void check_rendezvous(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 5}))
    run_ring(seam, checker, {.world = world, .rendezvous = true}, ones(world, 100));
  for (const int world : checker.fresh_worlds(1, 6, 20)) {
    const auto count = static_cast<size_t>(checker.draw_between(70, 1, 5000));
    run_ring(seam, checker, {.world = world, .rendezvous = true}, ones(world, count));
  }
  checker.proved("nobody waits for ever, even if a send waits for its receive");
}

/// The same bits on all ranks: replicas must not drift apart.
void check_bits(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({3, 5, 8})) {
    Run values;
    for (int r = 0; r < world; ++r) {
      auto& row = values.data.emplace_back();
      for (uint64_t i = 0; i < 101; ++i)
        row.push_back(drawn_value(checker, i * 64 + static_cast<uint64_t>(r)));
    }
    const auto data = run_ring(seam, checker, {.world = world}, values).data;
    expect_exact(checker, values.data, data[0]);
    for (int r = 1; r < world; ++r) {
      for (size_t i = 0; i < data[0].size(); ++i) {
        const float first = data[0][i], other = data[static_cast<size_t>(r)][i];
        checker.expect(
            std::memcmp(&first, &other, sizeof first) == 0, "different bits",
            fmt::format("element {} is {:.9g} on rank 0 and {:.9g} on rank {}", i, first, other, r),
            "Floating-point sums depend on their order. Add each chunk on one rank, and pass the result "
            "round as it is.");
      }
    }
  }
  checker.proved("all ranks hold the same bits");
}

void check_time(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 4, 8})) {
    const size_t count = 1024;
    const double alpha = 5, beta = 0.01;
    const auto report =
        run_ring(seam, checker,
                 {.world = world, .latency_us = alpha, .us_per_byte = beta, .keep_events = false},
                 ones(world, count))
            .report;
    const double expected = 2 * (world - 1) * (alpha + 4.0 * static_cast<double>(count) / world * beta);
    checker.note(
        fmt::format("{} ranks, 4 KiB: {:.2f} us on the virtual clock; 2(P-1)(alpha + S/P beta) = {:.2f} us",
                    world, report.time_us, expected));
    checker.expect(
        report.time_us <= expected * 1.0001, "slower than a ring",
        fmt::format(
            "{} ranks took {:.2f} us on the virtual clock, expected 2(P-1)(alpha + S/P beta) = {:.2f} us",
            world, report.time_us, expected),
        "In each step all ranks must send and receive at once. Start the send, receive, then wait for the "
        "send.");
  }
  checker.proved("its time is 2(P-1)(alpha + S/P beta) on the virtual clock");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  forbid_collectives();
  check_sums(seam, checker);
  check_rendezvous(seam, checker);
  check_bits(seam, checker);
  check_time(seam, checker);
}

}  // namespace lab::ring
