#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "06_process_group/check.h"
#include "lab/sums.h"

namespace lab::group {

namespace {

size_t index(int rank) {
  return static_cast<size_t>(rank);
}

/// Callers who follow a script. Not an exception that learners' handlers should catch.
struct WaitsForEver {};

using Calls = std::vector<std::pair<double, int>>;  // when, and which rank

class ScriptedLine : public Line {
 public:
  explicit ScriptedLine(const Calls& calls) : calls_(calls.begin(), calls.end()) {}

  std::optional<int> next_caller(double until_s) override {
    if (!calls_.empty() && calls_.front().first <= until_s) {
      const auto [at, rank] = calls_.front();
      calls_.pop_front();
      now_s_ = std::max(now_s_, at);
      return rank;
    }
    // Nobody calls any more: who asks again and again, or without an end, would never stop.
    if (++unanswered_ > 1000 || until_s > 1e9) throw WaitsForEver{};
    now_s_ = std::max(now_s_, until_s);
    return std::nullopt;
  }
  double now_s() const override { return now_s_; }

 private:
  std::deque<std::pair<double, int>> calls_;
  double now_s_ = 0;
  int unanswered_ = 0;
};

/// A roll call: who calls when, and what must come of it.
struct Story {
  int world;
  double deadline_s;
  Calls calls;
  int twice;                 ///< -1: nobody.
  std::vector<int> missing;  ///< If nobody is there twice.
  double over_s;             ///< When the roll call must be over.

  std::string text() const {
    std::vector<int> order;
    for (const auto& [at, rank] : calls) order.push_back(rank);
    return fmt::format(
        "{}, deadline {} s, {}", counted(world, "rank"), deadline_s,
        order.empty() ? "no calls" : fmt::format("calls from rank {}", fmt::join(order, ", ")));
  }
};

struct Called {
  int twice = -1;
  std::vector<int> missing;
  double at_s = 0;
  bool waits_for_ever = false;
};

/// Ranks 1 to world - 1 in an order of the seed's, a second after each other.
Calls everybody(const Checker& checker, int world, uint64_t salt) {
  std::vector<int> order;
  for (int rank = 1; rank < world; ++rank) order.push_back(rank);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[checker.draw(salt + i) % i]);
  Calls calls;
  double at = 0;
  for (const int rank : order) calls.emplace_back(at += 1, rank);
  return calls;
}

Story all_here(const Checker& checker, int world, double deadline_s, uint64_t salt) {
  const auto calls = everybody(checker, world, 100 * salt);
  return {world, deadline_s, calls, -1, {}, calls.empty() ? 0 : calls.back().first};
}

/// Ranks `first` to `last` never call; somebody else does at the last moment.
Story some_missing(const Checker& checker, int world, double deadline_s, int first, int last) {
  auto calls = everybody(checker, world, 7);
  std::erase_if(calls, [&](const auto& one) { return one.second >= first && one.second <= last; });
  if (!calls.empty()) calls.back().first = deadline_s - 0.5;  // in good time
  Story story{world, deadline_s, calls, -1, {}, deadline_s};
  for (int rank = first; rank <= last; ++rank) story.missing.push_back(rank);
  return story;
}

/// `twice` calls (rank 0 for the first time: it is here already), and `missing` never does. The second call
/// is the last one that a count would wait for, or comes before.
Story one_twice(const Checker& checker, int world, double deadline_s, int twice, int missing, bool is_last) {
  std::vector<int> order;
  if (twice != 0) order.push_back(twice);
  const auto first = static_cast<int64_t>(order.size());
  for (const auto& [when, rank] : everybody(checker, world, 9)) {
    if (rank != missing && rank != twice) order.push_back(rank);
  }
  const auto last = static_cast<int64_t>(order.size());
  const auto place = is_last ? last : checker.draw_between(900 + static_cast<uint64_t>(twice), first, last);
  order.insert(order.begin() + place, twice);
  order.push_back(world - 1);  // who comes after that is not asked any more
  Calls calls;
  for (const int rank : order) calls.emplace_back(calls.size() + 1, rank);
  return {world, deadline_s, calls, twice, {}, calls[static_cast<size_t>(place)].first};
}

void expect_roll(Checker& checker, const Story& story, const Called& found) {
  const auto what = story.text();
  const auto clock =
      fmt::format("{}: the roll call was over at {} s, expected {} s", what, found.at_s, story.over_s);
  const auto roll =
      fmt::format("{}: twice is {} and missing is [{}]", what, found.twice, fmt::join(found.missing, ", "));
  checker.in_world(story.world);
  checker.expect(!found.waits_for_ever, "waits for ever",
                 what + ": rank 0 was still waiting after the deadline",
                 "When next_caller returns nothing, the deadline has passed: stop, and name those who are "
                 "missing. A job that hangs costs more than one that ends.");
  if (story.twice >= 0) {
    checker.expect(found.twice < 0 || found.twice == story.twice, "wrong roll",
                   fmt::format("{}; rank {} came twice", roll, story.twice),
                   "Roll.twice is the rank that called for the second time, as next_caller returned it.");
    checker.expect(found.twice == story.twice, "duplicate accepted",
                   fmt::format("{}; rank {} came twice{}", roll, story.twice,
                               story.twice == 0 ? " (rank 0 is here already)" : ""),
                   "Counting callers is not enough: two processes with the same rank would both be counted, "
                   "while another rank is missing.");
    checker.expect(found.at_s == story.over_s, "returned too late", clock,
                   "When a rank has come for the second time, nothing can become right: return at once.");
    return;
  }
  checker.expect(found.twice < 0, "wrong roll", roll + "; nobody came twice",
                 "A rank has come twice when a second caller says its number.");
  checker.expect(found.at_s >= story.over_s, "gave up too early", clock,
                 "Ask for the next caller until all world_size - 1 others have come, or the deadline has "
                 "passed: who is late but in time must be waited for.");
  checker.expect(found.at_s == story.over_s, "waited too long", clock,
                 story.missing.empty() ? "When all have come there is nobody to wait for."
                                       : "The deadline is a time of the clock, for all together: it does not "
                                         "move when somebody calls.");
  checker.expect(found.missing == story.missing || !std::ranges::is_permutation(found.missing, story.missing),
                 "wrong order",
                 fmt::format("{}; expected missing = [{}]", roll, fmt::join(story.missing, ", ")),
                 "Those missing are the right ones; list them in ascending order.");
  checker.expect(found.missing == story.missing, story.missing.empty() ? "wrong roll" : "missing not named",
                 fmt::format("{}; expected missing = [{}]", roll, fmt::join(story.missing, ", ")),
                 story.missing.empty()
                     ? "Rank 0 is here itself; the others have come when each has called once, in any order."
                     : "Keep a mark for every rank, not only a count: the names are what helps to find the "
                       "node that did not start.");
}

}  // namespace

void check_roll(const Seam& seam, Checker& checker) {
  std::vector<int> worlds = checker.worlds({4, 2, 3, 5, 8, 1});
  for (const int world : checker.fresh_worlds(1, 9, 40)) worlds.push_back(world);
  for (const int world : checker.fresh_worlds(1, 66, 80)) worlds.push_back(world);  // more than a mask's bits
  std::vector<Story> stories;
  const auto each = [&](const auto& add) {
    for (const int world : worlds)
      add(world, world > 8 ? world + static_cast<double>(checker.draw_between(500, 5, 200)) : 30.0);
  };
  each([&](int world, double deadline) {
    for (const uint64_t salt : {0, 1, 2}) stories.push_back(all_here(checker, world, deadline, salt));
  });
  each([&](int world, double deadline) {
    for (int first = 1; first < world; ++first) {
      stories.push_back(some_missing(checker, world, deadline, first, first));
      stories.push_back(some_missing(checker, world, deadline, first, world - 1));
    }
  });
  each([&](int world, double deadline) {
    for (int twice = 0; twice < world && world > 1; ++twice) {
      const int missing = twice == world - 1 ? 1 : world - 1;
      // Of two ranks, all have come when the first one calls.
      for (const bool is_last : {true, false}) {
        if (missing != twice) stories.push_back(one_twice(checker, world, deadline, twice, missing, is_last));
      }
    }
  });
  const auto calls = checker.in_child([&] {
    std::vector<Called> all;
    for (const auto& story : stories) {
      tell_progress("call_the_roll: " + story.text());
      ScriptedLine line(story.calls);
      auto& one = all.emplace_back();
      try {
        const Roll roll = seam.call_the_roll(line, story.world, story.deadline_s);
        one = {roll.twice, roll.missing, line.now_s(), false};
      } catch (const WaitsForEver&) {
        one.waits_for_ever = true;
      }
    }
    return all;
  });
  for (size_t i = 0; i < stories.size(); ++i) expect_roll(checker, stories[i], calls[i]);
  checker.proved(
      "rank 0 names a duplicate at once and all that are missing at the deadline, and never hangs");
}

namespace {

/// What rank 0 does.
void play_boss(Rank& rank, std::span<float> ball, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    rank.send(ball, 1);
    rank.recv(ball, 1);
    rank.note("round");
  }
}

/// A game, and what it left.
struct Game {
  int world = 2;
  bool rendezvous = false;
  int rounds = 1;
  size_t count = 1;
  bool has_own_boss = false;              ///< The check plays rank 0, which adds nothing.
  std::vector<GuardedFloats> balls = {};  ///< By rank; rank 0's is counted from 10.
  Report report = {};
};

void expect_game(Checker& checker, const Game& game) {
  const auto& report = game.report;
  const auto there = report.messages[0][1], back = report.messages[1][0];
  const auto story = fmt::format("{}, {}, {}", counted(game.rounds, "round"), counted(game.world, "rank"),
                                 counted(static_cast<int64_t>(game.count), "float")) +
                     (game.has_own_boss ? ", the check plays rank 0" : "");
  checker.in_world(game.world);
  checker.expect(there > 0 || game.rounds == 0, "no ball",
                 fmt::format("{}: rank 0 sent nothing to rank 1", story),
                 "Rank 0 serves: it sends the ball to rank 1.");
  checker.expect(there == game.rounds && back == game.rounds, "wrong rounds",
                 fmt::format("{}: rank 0 sent {} to rank 1 and got {} back, expected {} each", story,
                             counted(there, "message"), back, game.rounds),
                 "In each round the ball goes there once and comes back once, as one message.");
  for (int r = 0; r < game.world; ++r) {
    const auto& ball = game.balls[index(r)];
    checker.expect(ball.damage().empty(), "wrote outside",
                   fmt::format("{}: rank {} wrote {}", story, r, ball.damage()),
                   "Memory beyond the ball belongs to somebody else.");
    if (r < 2) continue;
    checker.expect(
        report.sent_messages(r) == 0 && std::ranges::all_of(ball.floats(), [](float x) { return x == -1; }),
        "not its game", fmt::format("{}: rank {} changed its ball or sent a message", story, r),
        "Ranks 0 and 1 play. All others do nothing.");
  }
  for (size_t i = 0; i < game.count; ++i) {
    const float expected = static_cast<float>(10 * i) + static_cast<float>(game.rounds);
    const float found = game.balls[0].floats()[i];
    checker.expect(found == expected, "ball changed",
                   fmt::format("{}: element {} of rank 0's ball is {} at the end, expected {}", story, i,
                               found, expected),
                   "Rank 1 adds 1 to each element that it received, and sends that back; rank 0 receives it "
                   "into the same buffer.");
  }
  std::vector<int> notes(index(game.world));
  int returned = 0, early = 0;  // balls that rank 0 has back, and notes that came before theirs
  for (const auto& event : report.events) {
    if (event.kind == Event::Kind::kNote)
      early += ++notes[index(event.rank)] > returned && event.rank == 0 ? 1 : 0;
    if (event.kind == Event::Kind::kRecv && event.rank == 0) ++returned;
  }
  for (int r = 1; r < game.world; ++r) {
    checker.expect(notes[index(r)] == 0, "two bosses",
                   fmt::format("{}: rank {} wrote into the log", story, r),
                   "If every rank logs, there are P copies of every line. Only rank 0 calls note().");
  }
  checker.expect(
      notes[0] == game.rounds, notes[0] == 0 ? "nothing logged" : "wrong log",
      fmt::format("{}: rank 0 wrote {}, expected one for each round", story, counted(notes[0], "note")),
      "rank.note(\"some words\") after each round, on rank 0 alone.");
  checker.expect(early == 0, "logged too early",
                 fmt::format("{}: rank 0 wrote {} before the ball of that round was back", story,
                             counted(early, "note")),
                 "A log says what has happened. Write the note when the round is over.");
  checker.expect(report.time_us <= 2 * game.rounds + 1e-9, "time wasted",
                 fmt::format("{}: took {:.2f} us on the virtual clock, expected {}: {} of 1 us", story,
                             report.time_us, 2 * game.rounds, counted(2 * game.rounds, "message")),
                 "The ball is always on its way: nothing else happens.");
}

}  // namespace

void check_ping_pong(const Seam& seam, Checker& checker) {
  std::vector<Game> games;
  for (const bool rendezvous : {true, false}) {
    for (const int world : checker.worlds({2, 3, 5})) {
      for (const auto& [rounds, count] : {std::pair{3, size_t{4}}, {1, size_t{1000}}, {5, size_t{1}}})
        games.push_back({.world = world, .rendezvous = rendezvous, .rounds = rounds, .count = count});
      games.push_back(
          {.world = world, .rendezvous = rendezvous, .rounds = 4, .count = 3, .has_own_boss = true});
    }
    for (const int world : checker.fresh_worlds(1, 6, 20)) {
      const auto salt = 700 + static_cast<uint64_t>(world);
      const auto drawn = [&](uint64_t more, int64_t low, int64_t high) {
        return static_cast<int>(checker.draw_between(salt + more, low, high));
      };
      games.push_back({.world = world,
                       .rendezvous = rendezvous,
                       .rounds = drawn(0, 257, 300),
                       .count = index(drawn(1, 2, 9))});
      games.push_back({.world = world,
                       .rendezvous = rendezvous,
                       .rounds = drawn(2, 6, 9),
                       .count = index(drawn(3, 4097, 9999))});
    }
  }
  games.push_back({.world = checker.worlds({2}).front(), .rounds = 0, .count = 3});
  std::erase_if(games, [](const Game& game) { return game.world < 2; });
  games = checker.in_child([&] {
    for (auto& game : games) {
      game.balls.assign(index(game.world), GuardedFloats::make(game.count, -1));
      for (size_t i = 0; i < game.count; ++i) game.balls[0].floats()[i] = static_cast<float>(10 * i);
      game.report = checker.run({.world = game.world, .rendezvous = game.rendezvous}, [&](Rank& rank) {
        const auto ball = game.balls[index(rank.rank())].floats();
        rank.watch(ball);
        const bool is_own = game.has_own_boss && rank.rank() == 0;
        (is_own ? play_boss : seam.ping_pong)(rank, ball, game.rounds);
      });
    }
    return games;
  });
  for (const auto& game : games) {
    if (game.world == 2 && game.rounds == 3 && !game.rendezvous) checker.show(game.report);
    expect_game(checker, game);
  }
  checker.proved(
      "the ball goes to and fro, also if a send waits for its receive, and only the boss writes the log");
}

}  // namespace lab::group
