#include <fmt/format.h>

#include <functional>
#include <map>

#include "07_primitives/cases.h"

namespace lab::primitives {

namespace {

const char* const kTooManyRounds =
    "One rank sends, or receives, one message at a time. Let everybody help: in each round twice as many "
    "ranks as before take part.";
const char* const kCountFromRoot =
    "The tree must grow from the root. Count ranks from it, me = (rank - root + P) % P, and add it again for "
    "the peer.";

/// Each rank but the root takes part in one message of S bytes.
Limits tree_limits(const Case& one) {
  const int64_t messages = one.world - 1;
  return {.messages = messages,
          .bytes = messages * static_cast<int64_t>(one.count * sizeof(float)),
          .rounds = rounds_of(one.world)};
}

/// Why a rank that should have the root's data has these values.
Failure not_copied(const Case& one, const Left& left, const std::string& where, int r, size_t i) {
  const float found = left.out[index(r)].floats()[i];
  const auto origin = origin_of(found, one.world, one.count);
  if (!origin || origin->element != i) {
    return {"wrong data", fmt::format("{} is {}, expected {}", where, found, value(one.root, i)),
            "A broadcast copies: nothing is added, and every element keeps its place."};
  }
  bool is_all_of_rank_0 = one.root != 0;
  for (const auto& row : left.out) is_all_of_rank_0 &= row.floats()[i] == value(0, i);
  if (is_all_of_rank_0)
    return {"root ignored", where + " holds rank 0's data, as all others do", kCountFromRoot};
  if (origin->k != r) {
    return {
        "sent too soon", fmt::format("{} holds rank {}'s own data", where, origin->k),
        fmt::format("Rank {} sent what it had before it received the root's data. A rank receives first, and "
                    "sends in the rounds after that.",
                    origin->k)};
  }
  int64_t received = 0;
  for (const auto& row : left.report.messages) received += row[index(r)];
  if (received > 0 && i > 0) {
    return {"tail left out", where + " is as it was, elements before it are right",
            "A message carries all of data: send the span itself, and receive into it."};
  }
  if (received > 0) {
    return {"not received into data", where + " is as it was, although a message came",
            "What arrives must land in data: recv(data, ...), or copy it there."};
  }
  return {
      "left out", where + " is as it was",
      "This rank was never sent the data. Draw the tree for this world: who sends to this rank, and in which "
      "round? Worlds that are not a power of two have a tree with branches cut off."};
}

/// Every rank holds the root's values.
std::optional<Failure> judge_copies(const Primitive& primitive, const Case& one, const Left& left) {
  std::optional<Failure> first;
  for (int r = 0; r < one.world; ++r) {
    const auto row = left.out[index(r)].floats();
    for (size_t i = 0; i < one.count; ++i) {
      if (row[i] == value(one.root, i)) continue;
      const auto where = fmt::format("{}: rank {}, element {}", described(primitive, one), r, i);
      const Failure failure = not_copied(one, left, where, r, i);
      // Somebody else's data says more than a rank that has what it had, which may follow from it.
      if (failure.name != "left out") return failure;
      if (!first) first = failure;
      break;
    }
  }
  return first;
}

void check_broadcast(const Seam& seam, Checker& checker) {
  Primitive broadcast = {
      .name = "broadcast",
      .to_root = "from",
      .call = [&](Rank& rank, auto, auto out, int root) { seam.broadcast(rank, out, root); },
      .prepare =
          [](const Case& one) {
            Left left = {{}, empty_rows(one.world), {}};
            for (int r = 0; r < one.world; ++r) left.out.push_back(values(r, one.count));
            return left;
          },
      .limits = tree_limits,
      .rounds_hint = kTooManyRounds,
      .bytes_hint = "Each rank but the root needs the data once.",
      .judge = {}};
  std::map<int, double> rounds;
  Report shown;
  broadcast.judge = [&](const Case& one, const Left& left) {
    if (one.root == 0 && one.count == 12 && one.world <= 8) {
      rounds[one.world] = left.report.time_us;
      shown = left.report;
    }
    return judge_copies(broadcast, one, left);
  };
  check_primitive(checker, broadcast);
  std::string table;
  for (const auto& [world, took] : rounds)
    table += fmt::format("{}{} on {}", table.empty() ? "" : ", ", took, counted(world, "rank"));
  if (!rounds.empty()) checker.note("rounds of your broadcast: " + table);
  if (!rounds.empty()) checker.show(std::move(shown));
  checker.proved(
      "broadcast: everybody has the root's data after ceil(log2 P) rounds and P - 1 messages, for any root "
      "and "
      "size");
}

/// Whole numbers whose sum shows what is in it, as long as the root has it all.
std::optional<Failure> judge_sum(const Primitive& primitive, const Case& one, const Left& left) {
  const CountedBuffers buffers{left.out};
  const auto wrong = buffers.first_wrong_of(one.root);
  if (!wrong) return std::nullopt;
  const auto what = fmt::format("{}: {}", described(primitive, one), wrong->text());
  for (int r = 0; r < one.world; ++r) {
    if (!buffers.first_wrong_of(r))
      return Failure{"root ignored", fmt::format("{}; the sum is on rank {}", what, r), kCountFromRoot};
  }
  if (const auto operation = buffers.other_operation(one.root); !operation.empty()) {
    return Failure{operation + " instead of sum", fmt::format("{}: every element is the {}", what, operation),
                   "A reduce adds: data[i] += arrived[i], and nothing else."};
  }
  if (wrong->element > 0) {
    return Failure{"tail left out", what + "; elements before it are right",
                   "A message carries all of data, and every element of it is added."};
  }
  if (wrong->counts.empty())
    return Failure{"wrong data", what, "Add what arrives, element by element, to what you have."};
  if (wrong->has_repeats()) {
    return Failure{
        "counted twice", what,
        "A contribution came on two ways, or was added twice. In a tree a rank sends to its parent once, "
        "after its children's sums have arrived, and is done; each sum is added once."};
  }
  if (wrong->counts[index(one.root)] == 0) {
    return Failure{
        "left out", what,
        "The root's own contribution is gone: recv writes over what was there. Let messages arrive in a "
        "vector of your own, as long as data, and add that."};
  }
  return Failure{"left out", what,
                 "A contribution did not arrive at the root. A rank must receive and add everything from its "
                 "children before it sends to its parent."};
}

/// Sums that are neither whole nor positive, and exact all the same.
void check_fractions(const Primitive& reduce, Checker& checker) {
  const int world = checker.worlds({static_cast<int>(checker.draw_between(31, 3, 8))})[0];
  const auto root = static_cast<int>(checker.draw_between(32, 0, world - 1));
  std::vector<std::vector<float>> data(index(world));
  std::vector<float> expected(7);
  for (int r = 0; r < world; ++r) {
    for (size_t i = 0; i < expected.size(); ++i) {
      data[index(r)].push_back(static_cast<float>(checker.draw_between(index(r) * 64 + i, -4000, 4000)) / 16);
      expected[i] += data[index(r)].back();
    }
  }
  const auto found = checker.in_child([&] {
    checker.run({.world = world}, [&](Rank& rank) { reduce.call(rank, {}, data[index(rank.rank())], root); });
    return data[index(root)];
  });
  for (size_t i = 0; i < expected.size(); ++i) {
    checker.expect(
        found[i] == expected[i], "not for these values",
        fmt::format("{}: element {} is {}, expected {}", described(reduce, {world, root, expected.size()}), i,
                    found[i], expected[i]),
        "Sums of positive whole numbers are right, these with signs and fractions are not. Is there an "
        "integer, or an absolute value, in your sum?");
  }
}

void check_reduce(const Seam& seam, Checker& checker) {
  Primitive reduce = {
      .name = "reduce",
      .to_root = "to",
      .call = [&](Rank& rank, auto, auto out, int root) { seam.reduce(rank, out, root); },
      .prepare =
          [](const Case& one) {
            return Left{{}, empty_rows(one.world), CountedBuffers::make(one.world, one.count).rows};
          },
      .limits = tree_limits,
      .rounds_hint = kTooManyRounds,
      .bytes_hint = "Each rank but the root sends its sum once.",
      .judge = {}};
  reduce.judge = [&](const Case& one, const Left& left) { return judge_sum(reduce, one, left); };
  check_primitive(checker, reduce);
  check_fractions(reduce, checker);
  checker.proved(
      "reduce: the root holds every contribution once, after ceil(log2 P) rounds and P - 1 messages");
}

}  // namespace

void check_trees(const Seam& seam, Checker& checker) {
  check_broadcast(seam, checker);
  check_reduce(seam, checker);
}

}  // namespace lab::primitives
