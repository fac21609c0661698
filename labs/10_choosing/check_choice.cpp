#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <set>

#include "10_choosing/check.h"
#include "lockstep/plan/collectives.h"
#include "lockstep/plan/cost.h"
#include "lockstep/plan/simulate.h"

namespace lab::choosing {

namespace {

constexpr std::array<const char*, 4> kNames = {"naive", "ring", "recursive-doubling", "halving-doubling"};

/// A question to the chooser.
struct Cell {
  int world;
  int64_t count;  ///< Floats; every algorithm's chunks are of equal size.
  double alpha_us;
  double beta_us;

  int64_t bytes() const { return count * 4; }
  std::string text() const {
    return fmt::format("{} ranks, {} bytes, alpha {:.6g} us, beta {:.6g} us/byte", world, bytes(), alpha_us,
                       beta_us);
  }
};

using Times = std::map<std::string, double>;

/// What the library's simulator says: its plans, run on its clock.
Times simulated(const Cell& cell) {
  namespace plan = lockstep::plan;
  const plan::Network network{.between = {cell.alpha_us * 1e-6, cell.beta_us * 1e-6}, .inside = {}};
  Times times;
  for (const char* name : kNames) {
    const auto made = plan::make_plan(plan::Collective::kAllReduce, name, {.world = cell.world});
    times[name] = plan::simulate(made, network, cell.count).time_s * 1e6;
  }
  return times;
}

/// Those that are as fast as the fastest.
std::set<std::string> fastest(const Times& times) {
  double least = times.begin()->second;
  for (const auto& [name, time] : times) least = std::min(least, time);
  std::set<std::string> best;
  for (const auto& [name, time] : times) {
    if (time <= least * (1 + 1e-6)) best.insert(name);
  }
  return best;
}

/// A count at which another algorithm becomes the fastest, the first or the last such, and 3% beside it.
int64_t near_a_change(Cell cell, int64_t unit, bool is_first, bool is_below) {
  namespace plan = lockstep::plan;
  const plan::Network network{.between = {cell.alpha_us * 1e-6, cell.beta_us * 1e-6}, .inside = {}};
  const auto best = [&](int64_t units) {
    return *std::ranges::min_element(kNames, {}, [&](const char* name) {
      return plan::formula_time(plan::Collective::kAllReduce, name, {.world = cell.world}, units * unit * 4,
                                network)
          .value();
    });
  };
  int64_t low = 1, high = int64_t{1} << 24;
  const auto* const wanted = best(is_first ? low : high);
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    ((best(middle) == wanted) == is_first ? low : high) = middle;
  }
  return std::max<int64_t>(1, is_below ? low * 97 / 100 : high * 103 / 100) * unit;
}

/// 120 cells of known worlds and networks; 40 of drawn ones, close to where the choice changes; and 40 of
/// drawn ones, some of them above 2 GiB.
std::vector<Cell> cells(const Checker& checker) {
  const std::vector<int> worlds = checker.worlds({2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 33, 48, 64});
  constexpr std::array<double, 4> kAlphas = {0.5, 5, 20, 100};
  constexpr std::array<double, 3> kBetas = {8e-6, 8e-5, 1e-3};
  std::vector<Cell> all;
  for (uint64_t i = 0; i < 200; ++i) {
    const bool is_fresh = i >= 120;
    const int world =
        is_fresh
            ? checker.worlds({static_cast<int>(checker.draw_between(900 + i, 2, i < 160 ? 40 : 90))}).front()
            : worlds[i % worlds.size()];
    const auto core = static_cast<int64_t>(std::bit_floor(static_cast<unsigned>(world)));
    const auto unit = std::lcm<int64_t>(world, core);
    Cell cell{.world = world,
              .count = unit << (checker.draw(3 * i) % 18),
              .alpha_us = kAlphas[checker.draw(3 * i + 1) % kAlphas.size()],
              .beta_us = kBetas[checker.draw(3 * i + 2) % kBetas.size()]};
    if (is_fresh) {
      cell.alpha_us = static_cast<double>(checker.draw_between(1200 + i, 3, 3000)) / 10;
      cell.beta_us = static_cast<double>(checker.draw_between(1500 + i, 1, 5000)) * 1e-7;
    }
    if (is_fresh && i < 160) {
      const double scale = i % 8 < 4 ? 1e-3 : 1;  // of times that are fractions of a microsecond
      cell.alpha_us *= scale;
      cell.beta_us *= scale * 0.01;
      cell.count = near_a_change(cell, unit, i % 2 == 0, i % 4 < 2);
    } else if (is_fresh) {
      // Every other one beyond 32 bits, on a network where the choice still depends on all four numbers.
      if (i % 2 == 0) {
        cell.count = ((int64_t{1} << 29) / unit + checker.draw_between(1800 + i, 1, 1 << 24)) * unit;
        cell.beta_us *= 1e-5;
      }
    }
    all.push_back(cell);
  }
  return all;
}

/// Which wrong reckoning explains all the answers? Empty if none of those that we know.
void name_the_mistake(Checker& checker, const std::vector<Cell>& asked,
                      const std::vector<std::string>& answers, const std::string& what) {
  if (std::all_of(answers.begin(), answers.end(), [&](const auto& answer) { return answer == answers[0]; })) {
    checker.fail(
        "always the same",
        fmt::format("{}; in all {} cells your answer was {}", what, asked.size(), answers[0]),
        "No algorithm is the best one everywhere: short buffers ask for few rounds, long ones for few bytes. "
        "Write down the time of each, and take the least.");
  }
  const auto explains = [&](const auto& change) {
    for (size_t i = 0; i < asked.size(); ++i) {
      Cell cell = asked[i];
      change(cell);
      if (!fastest(simulated(cell)).contains(answers[i])) return false;
    }
    return true;
  };
  if (explains([](Cell& cell) { cell.alpha_us = 0; })) {
    checker.fail(
        "latency ignored", what,
        "Your answers are right for a network without latency. Every message costs alpha + n beta, and a "
        "ring has 2(P-1) of them after each other. Is alpha left out, or mixed up with beta?");
  }
  if (explains([](Cell& cell) { cell.beta_us = 0; })) {
    checker.fail(
        "bytes ignored", what,
        "Your answers are right for a network on which bytes cost nothing. Long buffers ask for few bytes.");
  }
  if (explains([](Cell& cell) { cell.beta_us /= 4; }) || explains([](Cell& cell) { cell.beta_us *= 4; })) {
    checker.fail("bytes or floats", what,
                 "Your answers are right for a buffer of another size by a factor of 4. `bytes` is in bytes, "
                 "and beta in us per byte: a float has 4 of them already counted.");
  }
}

/// One that is never the answer, though all wrong answers should have been it.
void name_who_is_missing(Checker& checker, const std::vector<Cell>& asked,
                         const std::vector<std::string>& answers, const std::vector<size_t>& wrong,
                         const std::string& what) {
  for (const std::string name : kNames) {
    const bool is_missing =
        std::ranges::count(answers, name) == 0 &&
        std::ranges::all_of(wrong, [&](size_t i) { return fastest(simulated(asked[i])).contains(name); });
    if (!is_missing) continue;
    checker.fail(
        name + " never chosen", what,
        fmt::format("Your answer is never {}, which is the fastest in all cells that are wrong. Compare "
                    "two rows of the lesson's table with your code: {}, which may be too slow there, and {}, "
                    "which may be too fast.{}",
                    name, name, answers[wrong[0]],
                    name == "ring" ? " Where the world is not a power of two the others have a fold, "
                                     "2(alpha + S beta) for the extra ranks; a ring has none."
                                   : ""));
  }
}

/// Sizes across, worlds down: what the learner's chooser says.
struct Row {
  int world = 0;
  std::vector<std::string> answers;
};
constexpr std::array<int, 6> kShifts = {10, 14, 17, 20, 24, 28};

void note_map(Checker& checker, const std::vector<Row>& rows) {
  const std::map<std::string, char> letters = {
      {"naive", 'n'}, {"ring", 'r'}, {"recursive-doubling", 'd'}, {"halving-doubling", 'h'}};
  checker.note(
      "your choice at 5 us and 100 Gbit/s: d recursive-doubling, h halving-doubling, r ring, n naive");
  checker.note("            1 KiB  16 KiB 128 KiB   1 MiB  16 MiB 256 MiB");
  for (const auto& row : rows) {
    std::string line = fmt::format("{:>3} ranks", row.world);
    for (const auto& answer : row.answers) {
      const auto letter = letters.find(answer);
      line += fmt::format("{:>8}", letter == letters.end() ? '?' : letter->second);
    }
    checker.note(line);
  }
}

/// What the learner's chooser says.
struct Answers {
  std::vector<std::string> first;
  std::vector<std::string> again;  ///< The same cells, asked from the last to the first.
  std::vector<Row> map;
};

Answers ask(const Seam& seam, Checker& checker, const std::vector<Cell>& asked) {
  return checker.in_child([&] {
    const auto answer = [&](const Cell& cell) {
      tell_progress("choose: " + cell.text());
      return seam.choose(cell.world, cell.bytes(), cell.alpha_us, cell.beta_us);
    };
    Answers answers;
    for (const auto& cell : asked) answers.first.push_back(answer(cell));
    for (auto cell = asked.rbegin(); cell != asked.rend(); ++cell) answers.again.push_back(answer(*cell));
    std::reverse(answers.again.begin(), answers.again.end());
    for (const int world : {2, 3, 4, 5, 8, 12, 16, 48, 64, 100}) {
      auto& row = answers.map.emplace_back(Row{world, {}});
      for (const int shift : kShifts)
        row.answers.push_back(answer({world, int64_t{1} << (shift - 2), 5, 8e-5}));
    }
    return answers;
  });
}

}  // namespace

void check_choice(const Seam& seam, Checker& checker) {
  checker.in_world(0);
  const auto asked = cells(checker);
  const auto [answers, again, map] = ask(seam, checker, asked);
  for (size_t i = 0; i < asked.size(); ++i) {
    checker.expect(std::find(kNames.begin(), kNames.end(), answers[i]) != kNames.end(), "unknown algorithm",
                   fmt::format("{}: your answer was '{}'", asked[i].text(), answers[i]),
                   fmt::format("The names are {}.", fmt::join(kNames, ", ")));
    checker.expect(
        answers[i] == again[i], "not reproducible",
        fmt::format("{}: your answer was {} at first and {} later", asked[i].text(), answers[i], again[i]),
        "The answer must follow from the four numbers alone. Does a static or global variable keep "
        "something from call to call?");
  }
  note_map(checker, map);
  std::vector<size_t> wrong;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (!fastest(simulated(asked[i])).contains(answers[i])) wrong.push_back(i);
  }
  if (!wrong.empty()) {
    const auto& cell = asked[wrong[0]];
    const auto& answer = answers[wrong[0]];
    const auto times = simulated(cell);
    const auto best = *fastest(times).begin();
    const auto what = fmt::format(
        "{} of {} cells are right. {}: your answer was {}, which takes {:.6g} us; {} takes {:.6g} us",
        asked.size() - wrong.size(), asked.size(), cell.text(), answer, times.at(answer), best,
        times.at(best));
    if (std::all_of(wrong.begin(), wrong.end(), [&](size_t i) { return asked[i].bytes() > INT32_MAX; })) {
      checker.fail("bytes do not fit", what,
                   "Below 2 GiB your answers are right. Do you keep bytes in an int? It ends at 2147483647: "
                   "use std::int64_t or double.");
    }
    name_the_mistake(checker, asked, answers, what);
    name_who_is_missing(checker, asked, answers, wrong, what);
    checker.fail(
        "not the fastest", what,
        "Write down the four formulas, with the extra ranks' two messages where the world is not a power of "
        "two, and compare them with `lockstep simulate allreduce` for this cell. Do you divide integers? In "
        "C++ (core - 1) / core is 0 if both are int.");
  }
  checker.proved(fmt::format("your choice is the simulator's fastest in all of {} cells", asked.size()));
}

}  // namespace lab::choosing
