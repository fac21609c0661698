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
    return fmt::format("{} ranks, {} bytes, alpha {} us, beta {} us/byte", world, bytes(), alpha_us, beta_us);
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
    if (time <= least * (1 + 1e-9)) best.insert(name);
  }
  return best;
}

std::vector<Cell> cells(const Checker& checker) {
  const std::vector<int> worlds = checker.worlds({2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 33, 48, 64});
  constexpr std::array<double, 4> kAlphas = {0.5, 5, 20, 100};
  constexpr std::array<double, 3> kBetas = {8e-6, 8e-5, 1e-3};
  std::vector<Cell> all;
  for (uint64_t i = 0; i < 200; ++i) {
    const int world = worlds[i % worlds.size()];
    const auto core = static_cast<int>(std::bit_floor(static_cast<unsigned>(world)));
    all.push_back({.world = world,
                   .count = std::lcm<int64_t>(world, core) << (checker.draw(3 * i) % 18),
                   .alpha_us = kAlphas[checker.draw(3 * i + 1) % kAlphas.size()],
                   .beta_us = kBetas[checker.draw(3 * i + 2) % kBetas.size()]});
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
    checker.fail("latency ignored", what,
                 "Your answers are right for a network without latency. Every message costs alpha, and a "
                 "ring has 2(P-1) "
                 "of them after each other.");
  }
  if (explains([](Cell& cell) { cell.beta_us = 0; })) {
    checker.fail(
        "bytes ignored", what,
        "Your answers are right for a network on which bytes cost nothing. Long buffers ask for few bytes.");
  }
  if (explains([](Cell& cell) {
        cell.world = static_cast<int>(std::bit_floor(static_cast<unsigned>(cell.world)));
      })) {
    checker.fail("extra ranks forgotten", what,
                 "Your answers are right for the next lower power of two. For other worlds halving and "
                 "doubling take two "
                 "messages of the whole buffer more: 2(alpha + S beta).");
  }
}

/// Sizes across, worlds down: what the learner's chooser says.
void note_map(const Seam& seam, Checker& checker) {
  const std::map<std::string, char> letters = {
      {"naive", 'n'}, {"ring", 'r'}, {"recursive-doubling", 'd'}, {"halving-doubling", 'h'}};
  checker.note(
      "your choice at 5 us and 100 Gbit/s: d recursive-doubling, h halving-doubling, r ring, n naive");
  checker.note("            1 KiB  16 KiB 128 KiB   1 MiB  16 MiB 256 MiB");
  for (const int world : {2, 3, 4, 5, 8, 12, 16, 48, 64, 100}) {
    std::string line = fmt::format("{:>3} ranks", world);
    for (const int shift : {10, 14, 17, 20, 24, 28}) {
      const auto letter = letters.find(seam.choose(world, int64_t{1} << shift, 5, 8e-5));
      line += fmt::format("{:>8}", letter == letters.end() ? '?' : letter->second);
    }
    checker.note(line);
  }
}

}  // namespace

void check_choice(const Seam& seam, Checker& checker) {
  checker.in_world(0);
  const auto asked = cells(checker);
  std::vector<std::string> answers;
  for (const Cell& cell : asked) {
    tell_progress("choose: " + cell.text());
    answers.push_back(seam.choose(cell.world, cell.bytes(), cell.alpha_us, cell.beta_us));
    checker.expect(std::find(kNames.begin(), kNames.end(), answers.back()) != kNames.end(),
                   "unknown algorithm", fmt::format("{}: your answer was '{}'", cell.text(), answers.back()),
                   fmt::format("The names are {}.", fmt::join(kNames, ", ")));
  }
  note_map(seam, checker);
  size_t right = 0;
  std::string first;
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto times = simulated(asked[i]);
    const auto best = fastest(times);
    if (best.contains(answers[i])) {
      ++right;
    } else if (first.empty()) {
      first =
          fmt::format("{}: your answer was {}, which takes {:.2f} us; {} takes {:.2f} us", asked[i].text(),
                      answers[i], times.at(answers[i]), *best.begin(), times.at(*best.begin()));
    }
  }
  if (right < asked.size()) {
    const auto what = fmt::format("{} of {} cells are right. {}", right, asked.size(), first);
    name_the_mistake(checker, asked, answers, what);
    checker.fail(
        "not the fastest", what,
        "Write down the four formulas, with the extra ranks' two messages where the world is no "
        "power of two, and "
        "compare them with `lockstep simulate allreduce` for this cell. Do you divide whole numbers? In "
        "C++ (core - 1) / core is 0 if both are int.");
  }
  checker.proved(fmt::format("your choice is the simulator's fastest in all of {} cells", asked.size()));
}

}  // namespace lab::choosing
