#include "06_process_group/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace lab::group {

namespace {

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
  bool is_other_type = false;  ///< Not a std::invalid_argument.
  std::string refusal = {};
  int rank = 0;
  int world_size = 1;
};

/// Asks for all environments in order, and then backwards.
std::vector<Answer> ask(const Seam& seam, Checker& checker, const std::vector<Environment>& all) {
  const auto answer = [&](const Environment& environment) -> Answer {
    tell_progress("place_of: " + text_of(environment));
    try {
      const Place place = seam.place_of(environment);
      return {.rank = place.rank, .world_size = place.world_size};
    } catch (const std::exception& error) {
      const bool is_right_type = dynamic_cast<const std::invalid_argument*>(&error) != nullptr;
      return {.is_refused = true, .is_other_type = !is_right_type, .refusal = error.what()};
    }
  };
  checker.in_world(0);
  const auto answers = checker.in_child([&] {
    std::vector<Answer> first, again;
    for (const auto& environment : all) first.push_back(answer(environment));
    for (auto one = all.rbegin(); one != all.rend(); ++one) again.push_back(answer(*one));
    return std::pair(first, again);
  });
  for (size_t i = 0; i < all.size(); ++i) {
    const auto &first = answers.first[i], &again = answers.second[all.size() - 1 - i];
    checker.expect(first.is_refused == again.is_refused && first.rank == again.rank &&
                       first.world_size == again.world_size,
                   "not reproducible", text_of(all[i]) + ": place_of gave two answers to the same question",
                   "Does a static or global variable keep something from call to call?");
  }
  return answers.first;
}

Environment environment_of(int nodes, int node, int per_node, int local) {
  return {{"NNODES", std::to_string(nodes)},
          {"NODE_RANK", std::to_string(node)},
          {"NPROC_PER_NODE", std::to_string(per_node)},
          {"LOCAL_RANK", std::to_string(local)}};
}

/// An environment that has a place.
struct Whole {
  Environment environment;
  int rank, world_size;
};

void expect_place(Checker& checker, const Whole& one, const Answer& found) {
  const auto where = text_of(one.environment);
  checker.expect(!found.is_refused, "refused without need",
                 fmt::format("{}: expected rank {} of {}, but place_of threw: {}", where, one.rank,
                             one.world_size, found.refusal),
                 "These variables say all that is needed, and nothing that contradicts it.");
  if (found.rank == one.rank && found.world_size == one.world_size) return;
  const auto what = fmt::format("{}: place_of returned rank {} of {}, expected rank {} of {}", where,
                                found.rank, found.world_size, one.rank, one.world_size);
  if (found.rank == 0 && found.world_size == 1) {
    checker.fail("nothing read", what,
                 "Every process thinks that it is alone: P worlds of one, each training for itself. Read the "
                 "four variables with number().");
  }
  if (found.rank == one.rank) {
    checker.fail(
        "wrong world size", what,
        "There are NNODES nodes with NPROC_PER_NODE processes each; ranks go from 0 to world_size - 1.");
  }
  checker.fail("wrong place", what,
               "Before this node there are NODE_RANK nodes of NPROC_PER_NODE processes, and before this "
               "process LOCAL_RANK others on its node.");
}

/// The same place with nothing, RANK, WORLD_SIZE or both beside the four.
void add_place(std::vector<Whole>& all, int nodes, int node, int per_node, int local) {
  const int rank = node * per_node + local, world_size = nodes * per_node;
  for (const int beside : {0, 1, 2, 3}) {
    auto environment = environment_of(nodes, node, per_node, local);
    if (beside % 2 == 1) environment["RANK"] = std::to_string(rank);
    if (beside / 2 == 1) environment["WORLD_SIZE"] = std::to_string(world_size);
    all.push_back({environment, rank, world_size});
  }
}

void check_places(const Seam& seam, Checker& checker) {
  std::vector<Whole> all;
  for (const auto& [nodes, per_node] : {std::pair{2, 4}, {1, 8}, {4, 3}, {4, 1}, {1, 1}}) {
    for (int node = 0; node < nodes; ++node) {
      for (int local = per_node - 1; local >= 0; --local) add_place(all, nodes, node, per_node, local);
    }
  }
  for (uint64_t i = 0; i < 40; ++i) {
    const auto draw = [&](uint64_t salt, int low, int high) {
      return static_cast<int>(checker.draw_between(10 * i + salt, low, high));
    };
    const int nodes = draw(0, 5, i < 20 ? 40 : 4000), per_node = draw(1, 2, i < 20 ? 33 : 200);
    add_place(all, nodes, draw(2, 0, nodes - 1), per_node, draw(3, 0, per_node - 1));
  }
  std::vector<Environment> environments;
  for (const auto& one : all) environments.push_back(one.environment);
  const auto answers = ask(seam, checker, environments);
  for (size_t i = 0; i < all.size(); ++i) expect_place(checker, all[i], answers[i]);
  std::string nodes_of_3;
  for (int node = 0; node < 4; ++node)
    nodes_of_3 +=
        fmt::format("{}node {} has ranks {} to {}", node == 0 ? "" : ", ", node, 3 * node, 3 * node + 2);
  checker.note("4 nodes of 3 processes: " + nodes_of_3);
  checker.proved("every process finds its place: 4 nodes of 3 are ranks 0 to 11, each once");
}

/// An environment that must be refused, by a text that names one of `suspects`.
struct Broken {
  Environment environment;
  std::vector<std::string> suspects;
  std::string name, meaning;
};

void expect_refused(Checker& checker, const Broken& one, const Answer& found) {
  const auto where = text_of(one.environment);
  if (!found.is_refused) {
    const auto said = one.environment.find("WORLD_SIZE");
    const bool is_other = one.name == "guessed" && said != one.environment.end() &&
                          said->second != std::to_string(found.world_size);
    checker.fail(is_other ? "wrong world size" : one.name,
                 fmt::format("{}: place_of returned rank {} of {}; it should refuse, and name {}", where,
                             found.rank, found.world_size, fmt::join(one.suspects, " or ")),
                 one.meaning);
  }
  const bool is_named = std::any_of(one.suspects.begin(), one.suspects.end(),
                                    [&](const auto& suspect) { return names(found.refusal, suspect); });
  checker.expect(
      is_named, "refused without a name",
      fmt::format("{}: place_of threw '{}', which does not name {}", where, found.refusal,
                  fmt::join(one.suspects, " or ")),
      "Who reads the message at night must know which variable to fix: put its name into the text.");
  checker.expect(
      !found.is_other_type, "wrong exception",
      fmt::format("{}: place_of threw '{}', which is not a std::invalid_argument", where, found.refusal),
      "Who calls place_of catches std::invalid_argument, as number() throws it.");
}

/// What can be wrong with the variables of one process.
void add_broken(std::vector<Broken>& all, int nodes, int node, int per_node, int local) {
  const auto good = environment_of(nodes, node, per_node, local);
  const auto add = [&](const std::string& name, const std::string& value, const std::string& failure,
                       const std::string& meaning, Environment environment) {
    environment[name] = value;
    all.push_back({environment, {name}, failure, meaning});
  };
  for (const auto& [name, value] : good) {
    auto environment = good;
    environment.erase(name);
    all.push_back(
        {environment,
         {name},
         "guessed",
         "A variable that is missing has no value that one could assume. number() refuses it by name."});
    for (const char* nonsense : {"two", "", "-1", "3x", "1.5", "99999999999"})
      add(name, nonsense, "nonsense accepted",
          "That is not a number of nodes or processes. number() refuses it by name.", good);
  }
  for (const int over : {0, 1, 5}) {
    const auto meaning = [](const char* name, const char* limit) {
      return fmt::format("{} counts from 0: it must be below {}. Otherwise two processes get the same rank.",
                         name, limit);
    };
    add("NODE_RANK", std::to_string(nodes + over), "nonsense accepted", meaning("NODE_RANK", "NNODES"), good);
    add("LOCAL_RANK", std::to_string(per_node + over), "nonsense accepted",
        meaning("LOCAL_RANK", "NPROC_PER_NODE"), good);
  }
  const int rank = node * per_node + local, world_size = nodes * per_node;
  for (const auto& [name, right, other, its] :
       {std::tuple{"RANK", rank, "WORLD_SIZE", world_size}, {"WORLD_SIZE", world_size, "RANK", rank}}) {
    const auto meaning = fmt::format(
        "Two variables say different things about {}, and one of them is wrong: perhaps a line that was left "
        "in a script. Nobody can know which; say so, and stop.",
        name);
    for (const int value : {right + 1, right - 1, right + per_node, local, nodes, 0}) {
      if (value == right || value < 0) continue;
      add(name, std::to_string(value), "contradiction accepted", meaning, good);
      auto with_other = good;  // right itself
      with_other[other] = std::to_string(its);
      add(name, std::to_string(value), "contradiction accepted", meaning, with_other);
    }
    add(name, "many", "nonsense accepted", "That is not a number. number() refuses it by name.", good);
  }
}

void check_refusals(const Seam& seam, Checker& checker) {
  // What one of the older courses asks its students to export. Its script reads other variables, assumes
  // values for those that it does not find, and prints a world size that is not 8.
  std::vector<Broken> all = {
      {{{"NODE_RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "8"}},
       {"NNODES", "NPROC_PER_NODE"},
       "guessed",
       "A variable that is missing has no value that one could assume: a wrong guess makes ranks of two "
       "worlds, which wait for each other for ever."}};
  add_broken(all, 2, 1, 4, 2);
  add_broken(all, 1, 0, 1, 0);  // assumed values would fit
  for (const uint64_t i : {0, 1, 2}) {
    const auto draw = [&](uint64_t salt, int low, int high) {
      return static_cast<int>(checker.draw_between(600 + 10 * i + salt, low, high));
    };
    const int nodes = draw(0, 3, 60), per_node = draw(1, 2, 40);
    add_broken(all, nodes, draw(2, 1, nodes - 1), per_node, draw(3, 0, per_node - 1));
  }
  std::vector<Environment> environments;
  for (const auto& one : all) environments.push_back(one.environment);
  const auto answers = ask(seam, checker, environments);
  for (size_t i = 0; i < all.size(); ++i) expect_refused(checker, all[i], answers[i]);
  checker.proved("missing, malformed and contradictory variables are refused by name");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_places(seam, checker);
  check_refusals(seam, checker);
  check_roll(seam, checker);
  check_ping_pong(seam, checker);
}

}  // namespace lab::group
