#include "06_process_group/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <utility>

namespace lab::group {

namespace {

size_t index(int rank) {
  return static_cast<size_t>(rank);
}

std::string text_of(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : environment) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

/// Whether `text` has `word`, and not only as a part of a longer name: RANK is not in NODE_RANK.
bool names(const std::string& text, const std::string& word) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_letter(text[at - 1])) && (end == text.size() || !is_letter(text[end]))) return true;
  }
  return false;
}

/// What place_of makes of an environment.
struct Answer {
  bool is_refused = false;
  std::string refusal = {};
  Place place = {};
};

Answer ask(const Seam& seam, const Environment& environment) {
  tell_progress("place_of: " + text_of(environment));
  try {
    return {.place = seam.place_of(environment)};
  } catch (const std::exception& error) {
    return {.is_refused = true, .refusal = error.what()};
  }
}

Environment environment_of(int nodes, int node, int per_node, int local) {
  return {{"NNODES", std::to_string(nodes)},
          {"NODE_RANK", std::to_string(node)},
          {"NPROC_PER_NODE", std::to_string(per_node)},
          {"LOCAL_RANK", std::to_string(local)}};
}

void expect_place(const Seam& seam, Checker& checker, const Environment& environment, int rank,
                  int world_size) {
  const auto answer = ask(seam, environment);
  const auto where = text_of(environment);
  checker.expect(!answer.is_refused, "refused without need",
                 fmt::format("{}: expected rank {} of {}, but place_of threw: {}", where, rank, world_size,
                             answer.refusal),
                 "These variables say all that is needed, and nothing that contradicts it.");
  const Place place = answer.place;
  if (place.rank == rank && place.world_size == world_size) return;
  const auto what = fmt::format("{}: place_of says rank {} of {}, expected rank {} of {}", where, place.rank,
                                place.world_size, rank, world_size);
  if (place.rank == 0 && place.world_size == 1) {
    checker.fail("nothing read", what,
                 "Every process thinks that it is alone: P worlds of one, each training for itself. Read the "
                 "four variables with number().");
  }
  if (place.rank == rank) {
    checker.fail(
        "wrong world size", what,
        "There are NNODES nodes with NPROC_PER_NODE processes each; ranks go from 0 to world_size - 1.");
  }
  checker.fail("wrong place", what,
               "Before this node there are NODE_RANK nodes of NPROC_PER_NODE processes, and before this "
               "process LOCAL_RANK others on its node.");
}

/// `environment` must be refused, and the text must name one of `suspects`.
void expect_refused(const Seam& seam, Checker& checker, const Environment& environment,
                    const std::vector<std::string>& suspects, const std::string& name,
                    const std::string& meaning) {
  const auto answer = ask(seam, environment);
  const auto where = text_of(environment);
  if (!answer.is_refused) {
    const auto said = environment.find("WORLD_SIZE");
    const bool is_other = name == "guessed" && said != environment.end() &&
                          said->second != std::to_string(answer.place.world_size);
    checker.fail(is_other ? "wrong world size" : name,
                 fmt::format("{}: place_of says rank {} of {}; it should refuse, and name {}", where,
                             answer.place.rank, answer.place.world_size, fmt::join(suspects, " or ")),
                 meaning);
  }
  const bool is_named = std::any_of(suspects.begin(), suspects.end(),
                                    [&](const auto& suspect) { return names(answer.refusal, suspect); });
  checker.expect(
      is_named, "refused without a name",
      fmt::format("{}: place_of threw '{}', which does not name {}", where, answer.refusal,
                  fmt::join(suspects, " or ")),
      "Who reads the message at night must know which variable to mend: put its name into the text.");
}

void check_places(const Seam& seam, Checker& checker) {
  for (const auto& [nodes, per_node] : {std::pair{2, 4}, {1, 8}, {4, 3}, {4, 1}, {1, 1}}) {
    for (int node = 0; node < nodes; ++node) {
      for (int local = per_node - 1; local >= 0; --local) {
        const int rank = node * per_node + local, world_size = nodes * per_node;
        auto environment = environment_of(nodes, node, per_node, local);
        expect_place(seam, checker, environment, rank, world_size);
        environment["RANK"] = std::to_string(rank);
        environment["WORLD_SIZE"] = std::to_string(world_size);
        expect_place(seam, checker, environment, rank, world_size);
      }
    }
  }
  std::string nodes_of_3;
  for (int node = 0; node < 4; ++node)
    nodes_of_3 +=
        fmt::format("{}node {} has ranks {} to {}", node == 0 ? "" : ", ", node, 3 * node, 3 * node + 2);
  checker.note("4 nodes of 3 processes: " + nodes_of_3);
  checker.proved("every process finds its place: 4 nodes of 3 are ranks 0 to 11, each once");
}

void check_refusals(const Seam& seam, Checker& checker) {
  // What one of the older courses tells its students to export. Its script reads other variables, assumes
  // values for those that it does not find, and prints a world size that is not 8.
  expect_refused(seam, checker, {{"NODE_RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "8"}},
                 {"NNODES", "NPROC_PER_NODE"}, "guessed",
                 "A variable that is missing has no value that one could assume: a wrong guess makes ranks "
                 "of two worlds, which wait for each other for ever.");
  const auto good = environment_of(2, 1, 4, 2);
  for (const auto& [name, value] : good) {
    auto environment = good;
    environment.erase(name);
    expect_refused(
        seam, checker, environment, {name}, "guessed",
        "A variable that is missing has no value that one could assume. number() refuses it by name.");
    for (const char* nonsense : {"two", "", "-1", "3x"}) {
      environment[name] = nonsense;
      expect_refused(seam, checker, environment, {name}, "nonsense accepted",
                     "That is no number of nodes or processes. number() refuses it by name.");
    }
  }
  for (const auto& [name, limit, value] :
       {std::tuple{"NODE_RANK", "NNODES", "2"}, {"LOCAL_RANK", "NPROC_PER_NODE", "4"}}) {
    auto environment = good;
    environment[name] = value;
    expect_refused(seam, checker, environment, {name}, "nonsense accepted",
                   fmt::format("{} counts from 0: it must be below {}. Else two processes get the same rank.",
                               name, limit));
  }
  for (const auto& [name, value] :
       {std::pair{"RANK", "5"}, {"RANK", "7"}, {"WORLD_SIZE", "2"}, {"WORLD_SIZE", "9"}}) {
    auto environment = good;
    environment[name] = value;
    expect_refused(
        seam, checker, environment, {name}, "contradiction accepted",
        fmt::format("Two variables say different things about {}, and one of them is wrong: perhaps a line "
                    "that was left in a script. Nobody can know which; say so, and stop.",
                    name));
  }
  checker.proved("missing, malformed and contradictory variables are refused by name");
}

/// Callers who follow a script. Not an exception that learners' handlers should catch.
struct WaitsForEver {};

class ScriptedLine : public Line {
 public:
  explicit ScriptedLine(std::deque<std::pair<double, int>> calls) : calls_(std::move(calls)) {}

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

constexpr double kDeadline = 30;

struct Called {
  Roll roll;
  double at_s;
};

Called call(const Seam& seam, Checker& checker, int world, const std::deque<std::pair<double, int>>& calls,
            const std::string& story) {
  checker.in_world(world);
  tell_progress("call_the_roll: " + story);
  ScriptedLine line(calls);
  try {
    const Roll roll = seam.call_the_roll(line, world, kDeadline);
    return {roll, line.now_s()};
  } catch (const WaitsForEver&) {
    checker.fail("waits for ever",
                 fmt::format("{}: the deadline was at {} s, and rank 0 was still waiting", story, kDeadline),
                 "When next_caller returns nothing, the deadline has passed: stop, and name those who are "
                 "missing. A job that hangs costs more than one that ends.");
  }
}

/// Ranks 1 to world - 1 in an order of the seed's, a second after each other.
std::deque<std::pair<double, int>> everybody(const Checker& checker, int world, uint64_t salt) {
  std::vector<int> order;
  for (int rank = 1; rank < world; ++rank) order.push_back(rank);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[checker.draw(salt + i) % i]);
  std::deque<std::pair<double, int>> calls;
  double at = 0;
  for (const int rank : order) calls.emplace_back(at += 1, rank);
  return calls;
}

std::string text_of(const std::deque<std::pair<double, int>>& calls) {
  std::vector<int> order;
  for (const auto& [at, rank] : calls) order.push_back(rank);
  return order.empty() ? "no calls" : fmt::format("calls from rank {}", fmt::join(order, ", "));
}

void check_all_here(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({4, 2, 3, 5, 8, 1})) {
    for (uint64_t salt = 0; salt < 3; ++salt) {
      const auto calls = everybody(checker, world, 100 * salt);
      const auto story = fmt::format("{} ranks, {}", world, text_of(calls));
      const auto [roll, at_s] = call(seam, checker, world, calls, story);
      const double last = calls.empty() ? 0 : calls.back().first;
      checker.expect(roll.twice < 0 && roll.missing.empty(), "wrong roll",
                     fmt::format("{}: all have come, but twice is {} and missing is [{}]", story, roll.twice,
                                 fmt::join(roll.missing, ", ")),
                     "Rank 0 is here itself; the others have come when each has called once, in any order.");
      checker.expect(
          at_s >= last, "gave up too early",
          fmt::format("{}: the last one came at {} s, but the roll call was over at {} s", story, last, at_s),
          "Ask for the next caller until all world_size - 1 others have come.");
      checker.expect(at_s == last, "waited too long",
                     fmt::format("{}: the last one came at {} s, but the roll call was over only at {} s",
                                 story, last, at_s),
                     "When all have come there is nobody to wait for.");
    }
  }
}

void check_missing(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({4, 5, 8, 3, 2})) {
    for (int first = 1; first < world; ++first) {
      // One is missing; then this one and all above it.
      for (const int last : {first, world - 1}) {
        auto calls = everybody(checker, world, 7);
        std::erase_if(calls, [&](const auto& one) { return one.second >= first && one.second <= last; });
        if (!calls.empty()) calls.back().first = kDeadline - 0.5;  // in good time
        const auto story = fmt::format("{} ranks, {}", world, text_of(calls));
        const auto [roll, at_s] = call(seam, checker, world, calls, story);
        std::vector<int> missing;
        for (int rank = first; rank <= last; ++rank) missing.push_back(rank);
        checker.expect(roll.twice < 0, "wrong roll",
                       fmt::format("{}: nobody came twice, but twice is {}", story, roll.twice),
                       "A rank has come twice when a second caller says its number.");
        checker.expect(at_s >= kDeadline, "gave up too early",
                       fmt::format("{}: the roll call was over at {} s, the deadline is at {} s", story, at_s,
                                   kDeadline),
                       "Those who are late but in time must be waited for.");
        checker.expect(
            at_s == kDeadline, "waited too long",
            fmt::format("{}: the roll call was over at {} s, the deadline is at {} s", story, at_s,
                        kDeadline),
            "The deadline is a time of the clock, for all together: it does not move when somebody calls.");
        checker.expect(roll.missing == missing, "missing not named",
                       fmt::format("{}: expected missing = [{}], got [{}]", story, fmt::join(missing, ", "),
                                   fmt::join(roll.missing, ", ")),
                       "Keep a mark for every rank, not only a count: the names are what helps to find the "
                       "node that did not start.");
      }
    }
  }
}

void check_duplicates(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({4, 5, 8, 3, 2})) {
    if (world < 2) continue;  // nobody else could call
    for (int twice = 0; twice < world; ++twice) {
      // `twice` calls (rank 0 for the first time: it is here already), and another one never does.
      const int missing = twice == world - 1 ? 1 : world - 1;
      if (missing == twice) continue;  // of two ranks: all have come when the first one calls
      std::deque<std::pair<double, int>> calls;
      double at = 0;
      for (const auto& one : everybody(checker, world, 9)) {
        if (one.second == missing) continue;
        if (one.second != twice) calls.emplace_back(at += 1, one.second);
      }
      if (twice != 0) calls.emplace_front(0.5, twice);
      calls.emplace_back(at += 1, twice);
      const double told = at;
      calls.emplace_back(at += 1, world - 1);  // who comes after that is not asked any more
      const auto story = fmt::format("{} ranks, {}", world, text_of(calls));
      const auto [roll, at_s] = call(seam, checker, world, calls, story);
      checker.expect(
          roll.twice == twice, "duplicate accepted",
          fmt::format("{}: rank {} came twice{}, but twice is {} and missing is [{}]", story, twice,
                      twice == 0 ? " (rank 0 is here already)" : "", roll.twice,
                      fmt::join(roll.missing, ", ")),
          "Counting callers is not enough: two processes with the same rank would both be counted, "
          "while another rank is missing.");
      checker.expect(at_s == told, "told too late",
                     fmt::format("{}: rank {} came for the second time at {} s, and that was told at {} s",
                                 story, twice, told, at_s),
                     "Nothing can become right after that: return at once.");
    }
  }
}

void check_ping_pong(const Seam& seam, Checker& checker) {
  for (const bool rendezvous : {true, false}) {
    for (const int world : checker.worlds({2, 3, 5})) {
      if (world < 2) continue;
      for (const auto& [rounds, count] : {std::pair{3, size_t{4}}, {1, size_t{1000}}, {5, size_t{1}}}) {
        std::vector<std::vector<float>> balls(index(world), std::vector<float>(count, -1));
        for (size_t i = 0; i < count; ++i) balls[0][i] = static_cast<float>(10 * i);
        auto report = checker.run({.world = world, .rendezvous = rendezvous}, [&, n = rounds](Rank& rank) {
          rank.watch(balls[index(rank.rank())]);
          seam.ping_pong(rank, balls[index(rank.rank())], n);
        });
        const auto there = report.messages[0][1], back = report.messages[1][0];
        const auto story = fmt::format("{} rounds on {} ranks", rounds, world);
        checker.expect(there > 0, "no ball", fmt::format("{}: rank 0 sent nothing to rank 1", story),
                       "Rank 0 serves: it sends the ball to rank 1.");
        checker.expect(there == rounds && back == rounds, "wrong rounds",
                       fmt::format("{}: {} messages from rank 0 to rank 1 and {} back, expected {} each",
                                   story, there, back, rounds),
                       "In each round the ball goes there once and comes back once.");
        for (size_t i = 0; i < count; ++i) {
          const float expected = static_cast<float>(10 * i) + static_cast<float>(rounds);
          checker.expect(balls[0][i] == expected, "ball changed",
                         fmt::format("{}: element {} of rank 0's ball is {} at the end, expected {}", story,
                                     i, balls[0][i], expected),
                         "Rank 1 adds 1 to what it received, and sends that back; rank 0 receives it into "
                         "the same buffer.");
        }
        std::vector<int> words(index(world));
        for (const auto& event : report.events) {
          if (event.kind == Event::Kind::kNote) ++words[index(event.rank)];
        }
        for (int r = 1; r < world; ++r) {
          checker.expect(words[index(r)] == 0, "two bosses",
                         fmt::format("{}: rank {} wrote into the log", story, r),
                         "If every rank logs, there are P copies of every line. Only rank 0 calls note().");
        }
        checker.expect(words[0] == rounds, "nothing logged",
                       fmt::format("{}: rank 0 wrote {} notes, expected one for each round", story, words[0]),
                       "rank.note(\"some words\") after each round, on rank 0 alone.");
        checker.expect(report.time_us <= 2 * rounds + 1e-9, "time wasted",
                       fmt::format("{}: took {} us on the virtual clock, expected {}: {} messages of 1 us",
                                   story, report.time_us, 2 * rounds, 2 * rounds),
                       "The ball is always on its way: nothing else happens.");
        if (world == 2 && rounds == 3 && !rendezvous) checker.show(std::move(report));
      }
    }
  }
  checker.proved(
      "the ball goes to and fro, also if a send waits for its receive, and only the boss writes the log");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_places(seam, checker);
  check_refusals(seam, checker);
  check_all_here(seam, checker);
  check_missing(seam, checker);
  check_duplicates(seam, checker);
  checker.proved(
      "rank 0 names a duplicate at once and all that are missing at the deadline, and never hangs");
  check_ping_pong(seam, checker);
}

}  // namespace lab::group
