#include "10_choosing/check.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "lab/calls.h"
#include "lab/collectives.h"
#include "lab/sums.h"

namespace lab::choosing {

namespace {

using Function = void(Rank&, std::span<float>);

size_t index(int rank) {
  return static_cast<size_t>(rank);
}

int core_of(int world) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(world)));
}

bool is_power(int world) {
  return core_of(world) == world;
}

/// 2 log2 of the core, and two more for the extra ranks.
int rounds_of(int world) {
  const int log_core = static_cast<int>(std::bit_width(static_cast<unsigned>(world))) - 1;
  return 2 * log_core + (is_power(world) ? 0 : 2);
}

/// A sentence about the extra ranks, for worlds that have some.
std::string extras(int world) {
  const int core = core_of(world);
  return fmt::format(
      "{} is not a power of two: {} ranks work in pairs. Each of the others hands in its data before that "
      "and "
      "gets the result afterwards, rank {} for example through rank 0.",
      world, core, core);
}

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

/// Worlds and sizes that the text names, powers of two first.
std::vector<Case> known_cases(const Checker& checker) {
  std::vector<Case> all;
  for (const int world : checker.worlds({1, 2, 4, 8, 3, 5, 6, 7})) {
    const size_t n = index(world);
    for (const size_t count : {3 * n, size_t{840}, size_t{1000}, n + 1, size_t{1}, size_t{0}})
      all.push_back({world, count});
  }
  return all;
}

/// Drawn ones; the last has blocks of more floats than 16 bits count.
std::vector<Case> fresh_cases(const Checker& checker) {
  std::vector<Case> all;
  const auto add = [&](int world, int64_t low, int64_t high) {
    const auto salt = index(world) + all.size();
    all.push_back({world, static_cast<size_t>(checker.draw_between(salt, low, high))});
  };
  for (const int world : checker.fresh_worlds(3, 9, 40)) {
    add(world, 2 * world, 499);
    add(world, 1, 2 * world);
    add(world, 4097, 9999);
  }
  add(checker.worlds({3}).front(), 140'000, 150'000);
  return all;
}

Left run_case(Checker& checker, const Case& one, Function* function) {
  Left left{{}, CountedBuffers::make(one.world, one.count)};
  const bool is_small = one.world <= 8 && one.count <= 3 * index(one.world);
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

/// What a wrong element's contributions say.
std::string meaning_of(const WrongElement& wrong) {
  if (wrong.counts.empty() && wrong.world <= 8)
    return "It is not made of whole contributions, as a sum is. What is done with what arrives: is it added, "
           "with "
           "nothing else, and to the block that it belongs to?";
  if (wrong.is_untouched())
    return "This element is as it was before: nothing was added to it, and no complete block replaced it. Do "
           "both loops take log2 core steps, and do they cover all blocks? What is sent are the blocks that "
           "the "
           "partner keeps, what is added to are this rank's own.";
  if (std::accumulate(wrong.counts.begin(), wrong.counts.end(), 0) == 1)
    return "One contribution alone is left. Either what arrived in the first half replaced yours in place of "
           "being added, or the second half passes on blocks that are not complete.";
  return "Follow one block: which rank keeps it in which step? At distance d rank r keeps the d blocks from "
         "r / "
         "d * d on; distances go from core / 2 down to 1, then from 1 up to core / 2.";
}

/// A run's own problem, where this lesson knows more of it.
std::optional<Failure> judge_problem(const Case& one, const Report& report) {
  // Who knows powers of two alone meets ranks that do not exist; the world's own words would not help.
  if (!is_power(one.world) && (report.problem == "wrong rank" || report.problem == "exception"))
    return Failure{"not a power of two", report.what, extras(one.world)};
  if (report.problem == "wrong size")
    return Failure{
        report.problem, report.what,
        "The two ends of a message must agree on its length. In the first half a rank receives what it "
        "keeps; in the second what its partner has; extra ranks hand in and get back the whole buffer. "
        "So long must the memory for it be, and each rank's own: ranks share what is static."};
  return std::nullopt;
}

std::optional<Failure> judge_sums(const Case& one, const Left& left) {
  const auto& buffers = left.buffers;
  if (!buffers.damage().empty())
    return Failure{"wrote outside", described(one) + ": " + buffers.damage(),
                   "Memory beyond the buffer belongs to somebody else. Where does your last block end?"};
  const auto wrong = buffers.first_wrong();
  if (!wrong) return std::nullopt;
  const auto what = described(one) + ": " + wrong->text();
  int64_t messages = 0;
  for (int r = 0; r < one.world; ++r) messages += left.report.sent_messages(r);
  if (one.world > 1 && messages == 0 && is_power(one.world))
    return Failure{
        "nothing added", what,
        "No rank sent a message here: the buffers are as they were. Begin with the halving, for a world "
        "that is a power of two; it takes buffers of any length."};
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
  if (!is_power(one.world)) return Failure{"not a power of two", what, extras(one.world)};
  if (wrong->has_repeats())
    return Failure{
        "counted twice", what,
        "A contribution was added more than once. In the second half complete blocks replace; and in "
        "the first, partners must add different blocks."};
  return Failure{"wrong sum", what, meaning_of(*wrong)};
}

/// Halves of halves: no rank sends more than 2 (core - 1) blocks, and the whole buffer once for an extra
/// rank.
std::optional<Failure> judge_cost(const Case& one, const Report& report) {
  const int world = one.world, core = core_of(world);
  const auto S = static_cast<int64_t>(one.count * sizeof(float));
  const int64_t halves =
      2 * (core - 1) * 4 * static_cast<int64_t>((one.count + index(core) - 1) / index(core));
  if (is_power(world) && world >= 4 && one.count >= index(world) && report.sent_messages(world - 1) == 1)
    return Failure{
        "steps left out",
        fmt::format("{}: rank {} sent 1 message, expected 2 log2 P = {}", described(one), world - 1,
                    rounds_of(world)),
        "In a world that is a power of two nobody is extra: core is the world itself, and each rank "
        "sends one message in each of log2 core steps, in both halves."};
  const int64_t most = halves + (is_power(world) ? 0 : S);
  int64_t all = 0;
  for (int r = 0; r < world; ++r) {
    all += report.sent_bytes(r);
    if (report.sent_bytes(r) <= most) continue;
    return Failure{
        "whole buffers sent",
        fmt::format("{}: rank {} sent {} bytes of a buffer of {}; halves of halves are "
                    "2(core-1)/core S{} = {}",
                    described(one), r, report.sent_bytes(r), S,
                    is_power(world) ? "" : " + S for an extra rank", most),
        "At distance d a message has d blocks: in the first half those that the partner keeps, in the "
        "second those that are complete. Exchanging everything is recursive doubling, which is good for "
        "short buffers."};
  }
  const int64_t all_most = core * halves + 2 * (world - core) * S;
  if (all > all_most)
    return Failure{
        "too many bytes",
        fmt::format("{}: {} bytes were sent in all, expected at most {}", described(one), all, all_most),
        "The core's ranks send 2(core-1)/core S each, and each extra rank costs its buffer in and "
        "out: 2 S. Does somebody send what nobody needs?"};
  if (report.time_us > rounds_of(world) + 1e-9)
    return Failure{
        "too many rounds",
        fmt::format("{}: {:.0f} rounds, expected {}", described(one), report.time_us, rounds_of(world)),
        "Send and receive at once: start the send, receive, then wait for the send. And there are "
        "log2 core steps in each half, with one message in each, and two more for extra ranks."};
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

/// Every rank ends with every contribution once, for as many rounds and bytes as it must.
void check_sums(const Seam& seam, Checker& checker) {
  const auto run = [&](const Case& one) { return run_case(checker, one, seam.halving_doubling_all_reduce); };
  const auto judge = [&](const Case& one, const Left& left) {
    if (!left.report.problem.empty()) return judge_problem(one, left.report);
    auto failure = judge_sums(one, left);
    if (!failure) failure = judge_cost(one, left.report);
    if (!failure && one.world == checker.worlds({4})[0] && one.count == 12) checker.show(left.report);
    return failure;
  };
  judge_calls(checker, known_cases(checker), run, judge);
  judge_calls(checker, fresh_cases(checker), run, judge);
  expect_nothing_kept(checker, seam.halving_doubling_all_reduce);
  checker.proved("every rank holds every contribution once, powers of two or not");
  checker.proved("2 log2 P rounds and 2(P-1)/P S bytes a rank; two rounds more if P is not a power of two");
}

/// Runs `data` on as many ranks, in a child.
struct Run {
  Report report;
  std::vector<std::vector<float>> data;  ///< By rank.
};
Run run(const Seam& seam, Checker& checker, const WorldOptions& options, Run run) {
  checker.in_world(options.world);
  return checker.in_child([&] {
    run.report = checker.run(
        options, [&](Rank& rank) { seam.halving_doubling_all_reduce(rank, run.data[index(rank.rank())]); });
    return run;
  });
}
Run ones(int world, size_t count) {
  return {{}, std::vector<std::vector<float>>(index(world), std::vector<float>(count, 1))};
}

void check_rendezvous(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({2, 3, 4, 5, 8}))
    run(seam, checker, {.world = world, .rendezvous = true}, ones(world, 100));
  for (const int world : checker.fresh_worlds(1, 9, 20)) {
    const auto count = static_cast<size_t>(checker.draw_between(70, 1, 5000));
    run(seam, checker, {.world = world, .rendezvous = true}, ones(world, count));
  }
  checker.proved("nobody waits for ever, even if a send waits for its receive");
}

/// The same bits on all ranks: replicas must not drift apart.
void check_bits(const Seam& seam, Checker& checker) {
  std::vector<int> worlds = checker.worlds({4, 5, 8});
  worlds.push_back(checker.fresh_worlds(1, 9, 20).back());
  for (const int world : worlds) {
    Run values;
    for (int r = 0; r < world; ++r) {
      auto& row = values.data.emplace_back();
      for (uint64_t i = 0; i < 101; ++i) row.push_back(drawn_value(checker, i * 64 + index(r)));
    }
    const auto data = run(seam, checker, {.world = world}, values).data;
    expect_exact(checker, values.data, data[0]);
    for (int r = 1; r < world; ++r) {
      for (size_t i = 0; i < data[0].size(); ++i) {
        const float first = data[0][i], other = data[index(r)][i];
        checker.expect(std::memcmp(&first, &other, sizeof first) == 0, "different bits",
                       fmt::format("{} ranks: element {} is {:.9g} on rank 0 and {:.9g} on rank {}", world, i,
                                   first, other, r),
                       "Floating-point sums depend on their order. Add each block on one rank, and pass the "
                       "result on as it is.");
      }
    }
  }
  checker.proved("all ranks hold the same bits");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  forbid_collectives();
  check_sums(seam, checker);
  check_rendezvous(seam, checker);
  check_bits(seam, checker);
  check_choice(seam, checker);
}

}  // namespace lab::choosing
