#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "07_primitives/cases.h"
#include "lab/calls.h"
#include "lab/collectives.h"

namespace lab::primitives {

namespace {

constexpr int kStride = 1 << 17;  // above every count; 34 times that and a half are still exact

/// Every root, and every kind of size with one root.
std::vector<Case> cases_of(const Checker& checker, int world) {
  std::vector<Case> all;
  const auto salt = 100 * static_cast<uint64_t>(world);
  const auto root = [&](uint64_t more) {
    return static_cast<int>(checker.draw_between(salt + more, 0, world - 1));
  };
  if (world <= 8) {
    for (int r = 0; r < world; ++r) all.push_back({world, r, 12});
  } else {
    for (const int r : {0, root(1), world - 1}) all.push_back({world, r, 12});
  }
  all.push_back({world, root(2), 1, true});
  all.push_back({world, root(3), 0});
  all.push_back({world, root(4), static_cast<size_t>(checker.draw_between(salt + 5, 13, 400)), true});
  return all;
}

/// Counts above 4096, and one with more floats on all ranks than 16 bits can count.
std::vector<Case> long_cases(const Checker& checker) {
  const auto drawn = [&](uint64_t salt, int64_t low, int64_t high) {
    return checker.draw_between(20'000 + salt, low, high);
  };
  std::vector<Case> all;
  for (const int world : checker.worlds({2, static_cast<int>(drawn(1, 4, 7))})) {
    const auto root = static_cast<int>(drawn(2, 0, world - 1));
    all.push_back({world, root, static_cast<size_t>(drawn(3, 4097, 9999))});
  }
  const int world = checker.worlds({3})[0];
  const int64_t high = 70'000 / std::max(1, world / 3);
  all.push_back(
      {world, static_cast<int>(drawn(4, 0, world - 1)), static_cast<size_t>(drawn(5, high - 4000, high))});
  return all;
}

Left run_case(const Checker& checker, const Primitive& primitive, const Case& one) {
  forbid_collectives();
  Left left = primitive.prepare(one);
  const WorldOptions options = {.world = one.world,
                                .seed = checker.seed(),
                                .rendezvous = one.rendezvous,
                                .keep_events = one.count == 12 && one.world <= 8};
  left.report = run_world(options, [&](Rank& rank) {
    const auto r = index(rank.rank());
    rank.watch(left.out[r].floats());
    primitive.call(rank, left.in[r].floats(), left.out[r].floats(), one.root);
  });
  return left;
}

std::optional<Failure> judge_memory(const Primitive& primitive, const Case& one, const Left& left) {
  const Left before = primitive.prepare(one);
  for (int r = 0; r < one.world; ++r) {
    for (const auto* rows : {&left.out, &left.in}) {
      if (const auto damage = (*rows)[index(r)].damage(); !damage.empty()) {
        return Failure{"wrote outside",
                       fmt::format("{}: rank {} wrote {}", described(primitive, one), r, damage),
                       "Memory beyond a buffer belongs to somebody else. Compare your indices with size()."};
      }
    }
    const auto &now = left.in[index(r)].cells, &then = before.in[index(r)].cells;
    if (std::memcmp(now.data(), then.data(), now.size() * sizeof(float)) != 0) {
      return Failure{"input changed",
                     fmt::format("{}: rank {}'s input is not as it was", described(primitive, one), r),
                     "What is handed in as const float is the caller's and stays as it is."};
    }
  }
  return std::nullopt;
}

/// A cost that may be too high: what, who, found and most.
std::optional<Failure> judge_cost(const Primitive& primitive, const Case& one, const Report& report) {
  const Limits limits = primitive.limits(one);
  const auto text = [&](const std::string& who, int64_t found, const char* unit, int64_t most) {
    return fmt::format("{}: {} {} {}, expected at most {}", described(primitive, one), who, found, unit,
                       most);
  };
  int64_t bytes = 0, busiest = 0;
  for (int r = 0; r < one.world; ++r) {
    bytes += report.sent_bytes(r);
    busiest = std::max(busiest, report.sent_bytes(r));
  }
  if (limits.messages >= 0 && messages(report) > limits.messages) {
    return Failure{
        "too many messages", text("all ranks together sent", messages(report), "messages", limits.messages),
        "Which of these messages brings something that its receiver needs and has not got? Send no others."};
  }
  const struct {
    const char* who;
    int64_t found, most;
  } all[] = {{"the root sent", report.sent_bytes(one.root), limits.root_sends},
             {"the root received", report.received_bytes(one.root), limits.root_receives},
             {"the busiest rank sent", busiest, limits.rank_sends},
             {"all ranks together sent", bytes, limits.bytes}};
  for (const auto& [who, found, most] : all) {
    if (most >= 0 && found > most)
      return Failure{"too many bytes", text(who, found, "bytes", most), primitive.bytes_hint};
  }
  // With a latency of 1 and free bytes the virtual clock counts rounds.
  if (limits.rounds >= 0 && report.time_us > limits.rounds + 1e-9) {
    return Failure{"too many rounds",
                   fmt::format("{}: took {:.6g} rounds, expected at most {}", described(primitive, one),
                               report.time_us, limits.rounds),
                   primitive.rounds_hint};
  }
  return std::nullopt;
}

std::optional<Failure> judge_case(const Primitive& primitive, const Case& one, const Left& left) {
  if (left.report.problem == "wrong rank" && left.report.what.find("rank -") == std::string::npos &&
      !left.report.what.ends_with("itself")) {
    return Failure{
        "nobody there", fmt::format("{}: {}", described(primitive, one), left.report.what),
        "A rank may have no partner at some distance: then it has nothing to do in that round. Counted "
        "from the root, me + distance must be below P. Add the root only then, and take the remainder."};
  }
  if (!left.report.problem.empty()) return std::nullopt;
  if (auto failure = judge_memory(primitive, one, left)) return failure;
  if (one.world > 1 && one.count > 0 && messages(left.report) == 0) {
    return Failure{
        "nothing sent", described(primitive, one) + ": no rank sent a message",
        "Ranks share no memory: what one of them knows, another one can only learn from a message."};
  }
  if (auto failure = primitive.judge(one, left)) return failure;
  return judge_cost(primitive, one, left.report);
}

/// A call that keeps what it allocates costs a training all of its memory.
void expect_nothing_kept(Checker& checker, const Primitive& primitive) {
  const int world = checker.worlds({3})[0];
  const Case one = {world, world - 1, 1000};
  checker.in_world(world);
  const int64_t kept =
      checker.in_child([&] { return kept_bytes([&] { run_case(checker, primitive, one); }); });
  checker.expect(kept < 8 * 1000, "memory kept",
                 fmt::format("{}: 8 calls left {} bytes more on the heap", described(primitive, one), kept),
                 "Something grows with every call: a static or global list, or memory that is never freed.");
}

}  // namespace

int rounds_of(int world) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(world - 1)));
}

int64_t messages(const Report& report) {
  int64_t sum = 0;
  for (int r = 0; r < static_cast<int>(report.bytes.size()); ++r) sum += report.sent_messages(r);
  return sum;
}

float value(int k, size_t i) {
  return static_cast<float>(kStride * (k + 1) + static_cast<int>(i)) + 0.5F;
}

std::optional<Origin> origin_of(float found, int world, size_t count) {
  const double whole = static_cast<double>(found) - 0.5;
  if (!(whole >= kStride && whole < kStride * (world + 1.0)) || whole != std::floor(whole))
    return std::nullopt;
  const auto cell = static_cast<size_t>(whole);
  const Origin origin = {static_cast<int>(cell / kStride) - 1, cell % kStride};
  if (origin.element >= count) return std::nullopt;
  return origin;
}

GuardedFloats values(int k, size_t count) {
  auto row = GuardedFloats::make(count);
  for (size_t i = 0; i < count; ++i) row.floats()[i] = value(k, i);
  return row;
}

std::vector<GuardedFloats> empty_rows(int world) {
  return {index(world), GuardedFloats::make(0)};
}

std::string described(const Primitive& primitive, const Case& one) {
  const auto whose =
      primitive.to_root.empty() ? " on" : fmt::format(" {} rank {} of", primitive.to_root, one.root);
  return fmt::format("{}{} {}, {}", primitive.name, whose, counted(one.world, "rank"),
                     counted(static_cast<int64_t>(one.count), "float"));
}

void check_primitive(Checker& checker, const Primitive& primitive) {
  checker.in_part(primitive.name);
  const auto run = [&](const Case& one) { return run_case(checker, primitive, one); };
  const auto judge = [&](const Case& one, const Left& left) { return judge_case(primitive, one, left); };
  std::vector<Case> cases;
  for (const int world : checker.worlds({1, 2, 3, 4, 5, 6, 7, 8})) {
    const auto more = cases_of(checker, world);
    cases.insert(cases.end(), more.begin(), more.end());
  }
  judge_calls(checker, cases, run, judge);
  cases = long_cases(checker);
  for (const int world : checker.fresh_worlds(2, 9, 33)) {
    const auto more = cases_of(checker, world);
    cases.insert(cases.end(), more.begin(), more.end());
  }
  judge_calls(checker, cases, run, judge);
  expect_nothing_kept(checker, primitive);
}

}  // namespace lab::primitives
