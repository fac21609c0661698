#include "plan/mutants.h"

#include <utility>

#include "lockstep/plan/stored.h"

namespace lockstep::plan {

namespace {

using Steps = std::vector<std::vector<Step>>;

struct Where {
  size_t rank;
  size_t index;
};

int below(std::mt19937_64& random, size_t limit) {
  return static_cast<int>(random() % limit);
}

/// A number from 0 to `most`, but not `not_this`.
int another(std::mt19937_64& random, int most, int not_this) {
  int value = not_this;
  while (value == not_this) value = below(random, static_cast<size_t>(most) + 1);
  return value;
}

template <typename Predicate>
std::optional<Where> pick(const Steps& steps, std::mt19937_64& random, const Predicate& fits) {
  std::vector<Where> all;
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    for (size_t index = 0; index < steps[rank].size(); ++index) {
      if (fits(steps[rank][index])) all.push_back({rank, index});
    }
  }
  if (all.empty()) return std::nullopt;
  return all[static_cast<size_t>(below(random, all.size()))];
}

template <typename Predicate>
bool drop(Steps& steps, std::mt19937_64& random, const Predicate& fits) {
  const auto where = pick(steps, random, fits);
  if (!where) return false;
  auto& of_rank = steps[where->rank];
  of_rank.erase(of_rank.begin() + static_cast<std::ptrdiff_t>(where->index));
  return true;
}

template <typename Predicate, typename Change>
bool change(Steps& steps, std::mt19937_64& random, const Predicate& fits, const Change& apply) {
  const auto where = pick(steps, random, fits);
  if (where) apply(steps[where->rank][where->index]);
  return where.has_value();
}

bool any(const Step&) {
  return true;
}
bool has_data(const Step& step) {
  return step.kind != Kind::kPost && step.kind != Kind::kWait;
}

bool swap_steps(Steps& steps, std::mt19937_64& random) {
  const auto first = pick(steps, random, any);
  if (!first) return false;
  auto& of_rank = steps[first->rank];
  Step& one = of_rank[first->index];
  Step& other = of_rank[static_cast<size_t>(below(random, of_rank.size()))];
  if (one.round == other.round) return false;
  std::swap(one, other);
  std::swap(one.round, other.round);
  return true;
}

bool duplicate(Steps& steps, std::mt19937_64& random) {
  const auto where = pick(steps, random, any);
  if (!where) return false;
  auto& of_rank = steps[where->rank];
  const Step copy = of_rank[where->index];
  of_rank.insert(of_rank.begin() + static_cast<std::ptrdiff_t>(where->index), copy);
  return true;
}

void move_slot(const Plan& plan, Step& step, std::mt19937_64& random) {
  const auto move = [&](int& slot) { slot = another(random, plan.slots, slot); };
  if (step.kind != Kind::kCombine) return move(step.slots.first);
  const bool source = random() % 2 == 0;
  Places& places = source ? step.sources : step.destinations;
  return move(places.except >= 0 && random() % 2 == 0 ? places.except_slot : places.slot);
}

bool mutate(const Plan& plan, Steps& steps, Mutation mutation, std::mt19937_64& random) {
  const auto of_kind = [](Kind kind) { return [kind](const Step& step) { return step.kind == kind; }; };
  switch (mutation) {
    case Mutation::kDropStep:
      return drop(steps, random, any);
    case Mutation::kSwapSteps:
      return swap_steps(steps, random);
    case Mutation::kDuplicateStep:
      return duplicate(steps, random);
    case Mutation::kWrongPeer:
      return change(
          steps, random, [](const Step& step) { return step.peer >= 0; },
          [&](Step& step) { step.peer = another(random, plan.world, step.peer); });
    case Mutation::kWrongChunk:
      return change(steps, random, has_data,
                    [&](Step& step) { step.chunk = another(random, plan.chunks, step.chunk); });
    case Mutation::kWrongSlot:
      return change(steps, random, has_data, [&](Step& step) { move_slot(plan, step, random); });
    case Mutation::kMissingWait:
      return drop(steps, random, of_kind(Kind::kWait));
    case Mutation::kMissingPost:
      return drop(steps, random, of_kind(Kind::kPost));
    case Mutation::kReceiveAndAdd:
      return change(
          steps, random, [](const Step& step) { return step.is_receive(); },
          [](Step& step) { step.kind = step.kind == Kind::kRecv ? Kind::kRecvReduce : Kind::kRecv; });
  }
  return false;
}

}  // namespace

std::string_view name(Mutation mutation) {
  constexpr std::string_view kNames[] = {"dropped step", "swapped steps", "duplicated step",
                                         "wrong peer",   "wrong chunk",   "wrong slot",
                                         "missing wait", "missing post",  "recv for recv_reduce"};
  return kNames[static_cast<size_t>(mutation)];
}

std::optional<Plan> mutant_of(const Plan& plan, Mutation mutation, std::mt19937_64& random) {
  Steps steps;
  for (int rank = 0; rank < plan.world; ++rank) steps.push_back(plan.steps(rank));
  const Steps original = steps;
  if (!mutate(plan, steps, mutation, random) || steps == original) return std::nullopt;
  return stored(plan, std::move(steps));
}

}  // namespace lockstep::plan
