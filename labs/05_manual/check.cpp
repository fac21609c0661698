#include "05_manual/check.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "05_manual/parts.h"
#include "lab/torch_guard.h"

namespace lab::manual {

namespace {

using torch::Tensor;

constexpr mlp::Shape kShape{16, 4};
constexpr double kLearningRate = 0.05;

/// What is in .grad() before a call.
enum class Old { kLeft, kNone, kOnFirst, kOnSecond };

/// A call of manual_step.
struct Call {
  size_t pair = 0;  ///< Which two copies.
  int64_t samples = 0;
  double lr = kLearningRate;
  Old old = Old::kLeft;
};

/// Two copies and their data: call i takes its samples from i * most on.
struct Pair {
  mlp::Shape shape;
  mlp::Samples data;
};

constexpr int64_t kMost = 66;  // samples in a call

Pair make_pair(const Checker& checker, mlp::Shape shape, size_t calls) {
  return {shape, mlp::make_samples(checker, kMost * static_cast<int64_t>(calls), shape.dim)};
}

void put_old_gradients(const mlp::CountedModel& first, const mlp::CountedModel& second, Old old) {
  if (old == Old::kLeft) return;
  const double none = std::numeric_limits<double>::quiet_NaN();
  mlp::set_gradients(first.model, old == Old::kOnFirst ? 1 : none);
  mlp::set_gradients(second.model, old == Old::kOnSecond ? 1 : none);
}

bool share_memory(const lockstep::FullMLP& first, const lockstep::FullMLP& second) {
  const auto of_first = first->parameters(), of_second = second->parameters();
  for (size_t i = 0; i < of_first.size(); ++i) {
    if (of_first[i].data_ptr() == of_second[i].data_ptr()) return true;
  }
  return false;
}

std::string name_of(const std::vector<Call>& calls, size_t index) {
  return fmt::format("{}a batch of {} samples",
                     calls.size() > 1 ? fmt::format("call {} of {}, ", index + 1, calls.size()) : "",
                     calls[index].samples);
}

std::vector<Seen> run_calls(const Seam& seam, Checker& checker, const std::vector<Pair>& pairs,
                            const std::vector<Call>& calls) {
  return checker.in_child([&] {
    std::vector<std::pair<mlp::CountedModel, mlp::CountedModel>> models;
    for (const auto& pair : pairs)
      models.emplace_back(mlp::CountedModel(checker, pair.shape), mlp::CountedModel(checker, pair.shape));
    std::vector<Seen> all;
    for (size_t i = 0; i < calls.size(); ++i) {
      auto& [first, second] = models[calls[i].pair];
      put_old_gradients(first, second, calls[i].old);
      const auto begin = static_cast<int64_t>(i) * kMost;
      const auto& data = pairs[calls[i].pair].data;
      auto& seen = all.emplace_back();
      seen.before = mlp::flat_weights(first.model);
      seen.carried = {mlp::flat_gradients(first.model), mlp::flat_gradients(second.model)};
      seen.input = data.input(begin, calls[i].samples).clone();
      seen.target = data.target(begin, calls[i].samples).clone();
      first.counting->passes = second.counting->passes = {};
      auto one = first.model, other = second.model;
      seen.loss = guard_torch(checker, "manual_step, " + name_of(calls, i), [&] {
        return seam.manual_step(one, other, seen.input, seen.target, calls[i].lr);
      });
      seen.after = {mlp::flat_weights(first.model), mlp::flat_weights(second.model)};
      seen.passes = {first.counting->passes, second.counting->passes};
      seen.shares_memory = share_memory(first.model, second.model);
      seen.records = torch::GradMode::is_enabled();
    }
    return all;
  });
}

void check_calls(const Seam& seam, Checker& checker, const std::vector<Pair>& pairs,
                 const std::vector<Call>& calls) {
  const auto all = run_calls(seam, checker, pairs, calls);
  std::vector<std::optional<Tensor>> last(pairs.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto& pair = pairs[calls[i].pair];
    const auto begin = static_cast<int64_t>(i) * kMost;
    auto& of_pair = last[calls[i].pair];
    of_pair = judge(checker,
                    {.name = name_of(calls, i),
                     .shape = pair.shape,
                     .lr = calls[i].lr,
                     .input = pair.data.input(begin, calls[i].samples),
                     .target = pair.data.target(begin, calls[i].samples),
                     .last = of_pair},
                    all[i]);
  }
}

/// One step from equal copies.
void check_one_step(const Seam& seam, Checker& checker, int64_t samples) {
  check_calls(seam, checker, {make_pair(checker, kShape, 1)}, {{.samples = samples}});
}

/// Several steps with batches of several sizes.
void check_many_steps(const Seam& seam, Checker& checker) {
  constexpr Old kOld[] = {Old::kOnFirst, Old::kOnSecond, Old::kNone, Old::kLeft};
  std::vector<Call> calls;
  for (uint64_t i = 0; i < 20; ++i)
    calls.push_back({.samples = checker.draw_between(10 + i, 2, 8), .old = kOld[i % 4]});
  check_calls(seam, checker, {make_pair(checker, kShape, calls.size())}, calls);
  checker.proved(
      fmt::format("in {} steps with 2 to 8 samples each is that of one model on the whole batch, "
                  "whatever gradients were there before",
                  calls.size()));
}

/// Two pairs of copies in alternation, of shapes that no text shows.
void check_drawn(const Seam& seam, Checker& checker) {
  std::vector<Call> calls;
  for (uint64_t i = 0; i < 6; ++i) {
    calls.push_back({.pair = i % 2,
                     .samples = i == 4 ? kMost - 1 : checker.draw_between(40 + i, 9, kMost),
                     .lr = static_cast<double>(checker.draw_between(50 + i, 1, 999)) * 1e-4});
  }
  const auto draw_pair = [&](uint64_t salt, int64_t least_depth) {
    const mlp::Shape shape{checker.draw_between(salt, 5, 37),
                           checker.draw_between(salt + 1, least_depth, least_depth + 3)};
    return make_pair(checker, shape, calls.size());
  };
  check_calls(seam, checker, {draw_pair(60, 5), draw_pair(62, 1)}, calls);
  checker.proved("the same for two pairs of copies, with sizes, batches and learning rates from the seed");
}

/// The same in floats: copies have equal bits, and differ from one model by rounding alone.
void check_bits(const Seam& seam, Checker& checker) {
  constexpr int64_t kSteps = 20, kSamples = 7;
  const auto doubles = mlp::make_samples(checker, kSteps * kSamples, kShape.dim);
  const mlp::Samples data{doubles.inputs.to(torch::kFloat), doubles.targets.to(torch::kFloat)};
  const auto make = [&] { return lockstep::FullMLP(kShape.dim, kShape.depth, checker.seed()); };
  const auto weights = checker.in_child([&] {
    auto first = make(), second = make();
    std::vector<std::pair<Tensor, Tensor>> all;
    for (int64_t step = 0; step < kSteps; ++step) {
      guard_torch(checker, fmt::format("manual_step in floats, call {}", step + 1), [&] {
        return seam.manual_step(first, second, data.input(step * kSamples, kSamples),
                                data.target(step * kSamples, kSamples), kLearningRate);
      });
      all.emplace_back(mlp::flat_weights(first), mlp::flat_weights(second));
    }
    return all;
  });
  auto whole = mlp::flat_weights(make()), alone = whole.clone();
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto move = [&](Tensor& of, int64_t samples) {
      of -= kLearningRate * mlp::gradient_of(of, kShape, data.input(step * kSamples, samples),
                                             data.target(step * kSamples, samples));
    };
    move(whole, kSamples);
    move(alone, 4);
    const auto& [first, second] = weights[static_cast<size_t>(step)];
    checker.expect(torch::equal(first, second), "copies drift apart",
                   fmt::format("in floats, after call {}, the copies' weights differ by up to {:.1e}",
                               step + 1, (first - second).abs().max().item<double>()),
                   "Rounding depends on the order of operations. Compute the mean once, and move both copies "
                   "by that very tensor.");
  }
  const auto apart = [&](const Tensor& one) { return (one - whole).abs().max().item<double>(); };
  const double found = apart(weights.back().first);
  checker.note(
      fmt::format("after {} steps in floats, largest difference of a weight: between the copies 0; between a "
                  "copy and one model on all samples {:.1e}; between that and a copy that nobody averages "
                  "{:.1e}",
                  kSteps, found, apart(alone)));
  checker.expect(found < 1e-4, "wrong gradient",
                 fmt::format("in floats, after {} steps, a copy's weights differ from one model's by {:.1e}",
                             kSteps, found),
                 "That is more than rounding. In doubles each step was right: is something made in another "
                 "type?");
  checker.proved("both copies have the same bits after every step, in floats, too");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_one_step(seam, checker, 8);
  checker.proved("two halves of a batch give the whole batch's gradient and loss");
  for (const int64_t samples : {7, 3, 2, 5}) check_one_step(seam, checker, samples);
  checker.proved("so do unequal shares, weighed by their samples; no sample is left out or seen twice");
  check_many_steps(seam, checker);
  check_drawn(seam, checker);
  check_bits(seam, checker);
}

}  // namespace lab::manual
