#include <fmt/format.h>

#include <algorithm>

#include "07_primitives/cases.h"

namespace lab::primitives {

namespace {

constexpr float kUntouched = -1;
const char* const kRootTooSlow =
    "The root may talk to everybody in turn, which takes P - 1 rounds: one message with each of the others.";

int64_t part_bytes(const Case& one) {
  return static_cast<int64_t>(one.count * sizeof(float));
}

GuardedFloats all_parts(const Case& one) {
  auto all = GuardedFloats::make(index(one.world) * one.count);
  for (int k = 0; k < one.world; ++k) {
    for (size_t i = 0; i < one.count; ++i) all.floats()[index(k) * one.count + i] = value(k, i);
  }
  return all;
}

std::vector<GuardedFloats> own_parts(const Case& one) {
  std::vector<GuardedFloats> parts;
  for (int r = 0; r < one.world; ++r) parts.push_back(values(r, one.count));
  return parts;
}

/// What stands in part k of rank r's buffer, against what should.
std::optional<Failure> judge_part(const Case& one, const std::string& what, std::span<const float> found,
                                  int r, int k) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == value(k, i)) continue;
    const auto place = fmt::format("{}: rank {}, part {}, element {}", what, r, k, i);
    if (found[i] == kUntouched && i > 0) {
      return Failure{"tail left out", place + " was never written, elements before it are right",
                     "A part is part.size() floats: all of them are sent, received or copied."};
    }
    if (found[i] == kUntouched) {
      return Failure{"left out", place + " was never written",
                     r == k ? "Every rank has a part, the root too: its own part is copied, not sent."
                            : "This part never came. Who sends it, and does it land in its place?"};
    }
    const auto origin = origin_of(found[i], one.world, one.count);
    if (!origin)
      return Failure{"wrong data", fmt::format("{} is {}, expected {}", place, found[i], value(k, i)),
                     "Parts are copied: nothing is added, and no value changes."};
    return Failure{
        "wrong part",
        origin->k != k ? fmt::format("{} holds part {}", place, origin->k)
                       : fmt::format("{} holds element {} of it", place, origin->element),
        "Part k is all.subspan(k * part.size(), part.size()), and belongs to rank k for any root."};
  }
  return std::nullopt;
}

/// All parts on one rank.
std::optional<Failure> judge_all(const Case& one, const std::string& what, const Left& left, int r) {
  for (int k = 0; k < one.world; ++k) {
    const auto part = left.out[index(r)].floats().subspan(index(k) * one.count, one.count);
    if (auto failure = judge_part(one, what, part, r, k)) return failure;
  }
  return std::nullopt;
}

void check_scatter(const Seam& seam, Checker& checker) {
  Primitive scatter = {
      .name = "scatter",
      .to_root = "from",
      .call = [&](Rank& rank, auto in, auto out, int root) { seam.scatter(rank, in, out, root); },
      .prepare =
          [](const Case& one) {
            Left left = {{}, empty_rows(one.world), {}};
            left.in[index(one.root)] = all_parts(one);
            left.out.assign(index(one.world), GuardedFloats::make(one.count, kUntouched));
            return left;
          },
      .limits =
          [](const Case& one) {
            const int64_t others = (one.world - 1) * part_bytes(one);
            return Limits{.messages = one.world - 1,
                          .bytes = others * rounds_of(one.world),
                          .root_sends = others,
                          .rounds = one.world - 1};
          },
      .rounds_hint = kRootTooSlow,
      .bytes_hint = "A rank needs its own part. Sending everything to everybody is a broadcast.",
      .judge = {}};
  scatter.judge = [&](const Case& one, const Left& left) -> std::optional<Failure> {
    for (int r = 0; r < one.world; ++r) {
      if (auto failure = judge_part(one, described(scatter, one), left.out[index(r)].floats(), r, r))
        return failure;
    }
    return std::nullopt;
  };
  check_primitive(checker, scatter);
  checker.proved(
      "scatter: rank k has part k after P - 1 messages, and the root sent no byte more than the others' "
      "parts");
}

void check_gather(const Seam& seam, Checker& checker) {
  Primitive gather = {
      .name = "gather",
      .to_root = "to",
      .call = [&](Rank& rank, auto in, auto out, int root) { seam.gather(rank, in, out, root); },
      .prepare =
          [](const Case& one) {
            Left left = {{}, own_parts(one), empty_rows(one.world)};
            left.out[index(one.root)] = GuardedFloats::make(index(one.world) * one.count, kUntouched);
            return left;
          },
      .limits =
          [](const Case& one) {
            const int64_t others = (one.world - 1) * part_bytes(one);
            return Limits{.messages = one.world - 1,
                          .bytes = others * rounds_of(one.world),
                          .root_sends = 0,
                          .root_receives = others,
                          .rounds = one.world - 1};
          },
      .rounds_hint = kRootTooSlow,
      .bytes_hint = "The root needs each part once, and nobody else needs any.",
      .judge = {}};
  gather.judge = [&](const Case& one, const Left& left) {
    return judge_all(one, described(gather, one), left, one.root);
  };
  check_primitive(checker, gather);
  checker.proved(
      "gather: the root has everybody's part, in rank order, after P - 1 messages, each part once");
}

/// What the challenge is about: a ring sends less than a gather and a broadcast.
void note_busiest(Checker& checker, const Primitive& all_gather) {
  const int world = checker.worlds({8})[0];
  Left left = all_gather.prepare({world, 0, 250});
  const Report report = checker.in_child([&] {
    return checker.run({.world = world, .keep_events = false}, [&](Rank& rank) {
      const auto r = index(rank.rank());
      all_gather.call(rank, left.in[r].floats(), left.out[r].floats(), 0);
    });
  });
  int64_t busiest = 0;
  for (int r = 0; r < world; ++r) busiest = std::max(busiest, report.sent_bytes(r));
  checker.note(
      fmt::format("all_gather of 1000 bytes a rank on {}: your busiest rank sent {} bytes; in a ring "
                  "everybody sends {}",
                  counted(world, "rank"), busiest, (world - 1) * 1000));
}

void check_all_gather(const Seam& seam, Checker& checker) {
  Primitive all_gather = {
      .name = "all_gather",
      .call = [&](Rank& rank, auto in, auto out, int) { seam.all_gather(rank, in, out); },
      .prepare =
          [](const Case& one) {
            const size_t count = index(one.world) * one.count;
            return Left{{}, own_parts(one), {index(one.world), GuardedFloats::make(count, kUntouched)}};
          },
      .limits =
          [](const Case& one) {  // what a gather and a broadcast need, also along trees
            const int64_t world = one.world, rounds = rounds_of(one.world), part = part_bytes(one);
            return Limits{.messages = world * (world - 1),
                          .bytes = (world - 1) * (world + rounds) * part,
                          .rank_sends = world * rounds * part};
          },
      .bytes_hint =
          "A gather and a broadcast of all parts are enough; in a ring everybody sends P - 1 parts.",
      .judge = {}};
  all_gather.judge = [&](const Case& one, const Left& left) -> std::optional<Failure> {
    for (int r = 0; r < one.world; ++r) {
      if (auto failure = judge_all(one, described(all_gather, one), left, r)) return failure;
    }
    return std::nullopt;
  };
  check_primitive(checker, all_gather);
  note_busiest(checker, all_gather);
  checker.proved(
      "all_gather: everybody has everybody's part, in rank order, for no more than a gather and a broadcast");
}

}  // namespace

void check_parts(const Seam& seam, Checker& checker) {
  check_scatter(seam, checker);
  check_gather(seam, checker);
  check_all_gather(seam, checker);
}

}  // namespace lab::primitives
