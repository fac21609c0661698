#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "01_train_step/parts.h"
#include "lab/torch_guard.h"

namespace lab::baseline {

namespace {

using mlp::close;
using mlp::ratio;
using mlp::Shape;
using torch::Tensor;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// A model and the size of its batches.
struct Setup {
  Shape shape;
  int64_t batch = 0;
  mlp::Samples samples;
};

Setup make_setup(const Checker& checker, int64_t dim, int64_t batch, size_t calls) {
  return {{dim, kDepth}, batch, mlp::make_samples(checker, batch * static_cast<int64_t>(calls), dim)};
}

/// A call of train_step.
struct Call {
  size_t model = 0;
  double lr = kLearningRate;
  std::optional<double> gradients = {};  ///< Put there before it; kNone: none at all.
};

/// What a call found and left.
struct Seen {
  double loss = 0;
  Tensor before, carried;  ///< Weights, and what .grad() held.
  Tensor after, left;      ///< The same afterwards.
  Tensor input, target;    ///< Afterwards.
  mlp::Passes passes;
  bool records = true;  ///< Autograd still records.
};

/// Call i of a model takes its samples from i * batch on.
std::vector<Seen> run_steps(const Seam& seam, Checker& checker, const std::vector<Setup>& setups,
                            const std::vector<Call>& calls) {
  return checker.in_child([&] {
    std::vector<mlp::CountedModel> models;
    for (const auto& setup : setups) models.emplace_back(checker, setup.shape);
    std::vector<Seen> all;
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto& call = calls[i];
      const auto& setup = setups[call.model];
      auto [model, counting] = models[call.model];
      if (call.gradients) mlp::set_gradients(model, *call.gradients);
      counting->passes = {};
      const auto begin = static_cast<int64_t>(i) * setup.batch;
      auto& seen = all.emplace_back();
      seen.before = mlp::flat_weights(model);
      seen.carried = mlp::flat_gradients(model);
      seen.input = setup.samples.input(begin, setup.batch).clone();
      seen.target = setup.samples.target(begin, setup.batch).clone();
      auto handed = model;
      seen.loss = guard_torch(checker, fmt::format("train_step, call {}", i + 1),
                              [&] { return seam.train_step(handed, seen.input, seen.target, call.lr); });
      seen.after = mlp::flat_weights(model);
      seen.left = mlp::flat_gradients(model);
      seen.passes = counting->passes;
      seen.records = torch::GradMode::is_enabled();
    }
    return all;
  });
}

/// One call and what is known of it.
struct Step {
  size_t number = 1;
  Shape shape;
  int64_t batch = 0;
  double lr = 0;
  Tensor input, target, gradient;  ///< As they should be.
  Tensor used;                     ///< The gradient that the weights moved by.
  std::optional<Tensor> last;      ///< The same of the model's step before.
};

void check_loss(Checker& checker, const Step& step, const Seen& seen) {
  const auto output = mlp::output_of(seen.before, step.shape, step.input);
  const double right = (output - step.target).square().mean().item<double>(), found = seen.loss;
  if (close(found, right)) return;
  const auto what =
      fmt::format("call {}: train_step returned {:.6g}, the mean squared error of its batch is {:.6g}",
                  step.number, found, right);
  checker.expect(found != 0, "nothing computed", what,
                 "Go forward with model->forward(input), take the mean of (output - target) squared, and "
                 "return it as a number: loss.item<double>().");
  checker.expect(std::isfinite(found), "loss not finite", what,
                 "Something was divided by zero, or a tensor was used before it had values.");
  const auto batch = static_cast<double>(step.batch), dim = static_cast<double>(step.shape.dim);
  for (const double times : {batch, dim, batch * dim}) {
    checker.expect(!close(found, right * times), "sum instead of mean", what,
                   fmt::format("It is {} times too large: take the mean over all {} x {} numbers. A sum "
                               "grows with the batch, and the step with it.",
                               times, step.batch, step.shape.dim));
  }
  const auto without = [&](int64_t begin) {
    return mlp::loss_of(seen.before, step.shape, step.input.narrow(0, begin, step.batch - 1),
                        step.target.narrow(0, begin, step.batch - 1));
  };
  const std::vector<Suspect> suspects = {
      {mlp::loss_of(seen.after, step.shape, step.input, step.target), "loss of the moved weights",
       "That is the loss after the update. Return the one that backward() started from: one forward a step "
       "is enough."},
      {right / 2, "half the loss", "That is half of it: the mean squared error has no factor 1/2."},
      {std::sqrt(right), "root of the loss", "That is its root. The loss is the mean of the squares."},
      {(output - step.target).abs().mean().item<double>(), "absolute error",
       "That is the mean of the absolute differences. Square them."},
      {without(0), "sample left out", "That is the loss without the last sample of the batch."},
      {without(1), "sample left out", "That is the loss without the first sample of the batch."},
      {right * batch * dim / (8 * 16), "size hard-coded",
       "It was divided by 8 x 16, the size of another batch. Ask the tensors for their size, or take "
       "mean()."},
  };
  for (const auto& [value, name, meaning] : suspects)
    checker.expect(!close(found, value), name, what, meaning);
  checker.fail("wrong loss", what,
               "The loss is the mean over all numbers of (model->forward(input) - target) squared.");
}

/// The weights did not move in the first call: why?
[[noreturn]] void explain_standstill(const Seam& seam, Checker& checker, const Setup& setup, const Step& step,
                                     const Seen& seen) {
  const auto both = run_steps(seam, checker, {setup}, {{}, {}});
  if (close((both[1].before - both[1].after) / step.lr, step.gradient)) {
    checker.fail(
        "step before backward",
        "the first call moved no weight, the second one moved them by the first batch's gradient",
        "Gradients are there after backward(), and belong to the batch that made them. The order is: "
        "forget, forward, loss, backward, then move.");
  }
  if (close(seen.left, step.gradient)) {
    checker.fail("weights stand still",
                 "backward() has left the right gradients, but after train_step every weight is as it was",
                 "Change the parameters themselves, after backward() and before the gradients are forgotten: "
                 "for (auto& w : model->parameters()) w -= lr * w.grad();");
  }
  checker.fail("no backward",
               "the loss is right, but no weight has moved and the parameters hold no gradient of this batch",
               "loss.backward() leaves in every parameter's .grad() how the loss changes with it.");
}

/// The weights moved by a multiple of the gradient.
void check_length(Checker& checker, const Step& step, const std::string& what) {
  const double times = ratio(step.used, step.gradient);
  if (std::isnan(times)) return;
  checker.expect(!close(times, -1), "uphill", what,
                 "The gradient points to where the loss rises. Subtract it.");
  checker.expect(!close(times * step.lr, 1), "no learning rate", what,
                 "The gradient says which way, not how far. Multiply it by lr.");
  checker.expect(step.lr == kLearningRate || !close(times * step.lr, kLearningRate), "learning rate ignored",
                 what,
                 fmt::format("The step is that of the learning rate {}, which other calls had. Use the "
                             "parameter lr of this call.",
                             kLearningRate));
  checker.fail("wrong step size", what,
               fmt::format("The direction is right, the length is {:.6g} times what it should be. Does "
                           "something happen twice, is the loss scaled before backward(), or are "
                           "gradients clipped?",
                           times));
}

void check_direction(Checker& checker, const Step& step, const Seen& seen) {
  const auto &used = step.used, &gradient = step.gradient;
  if (close(used, gradient)) return;
  const int64_t at = (used - gradient).abs().argmax().item<int64_t>();
  const auto what = fmt::format(
      "call {}: {}: the weight moved by {:.6g}; lr {:.4g} times its gradient {:.6g}, downhill, is {:.6g}",
      step.number, mlp::place(step.shape, at), -step.lr * used[at].item<double>(), step.lr,
      gradient[at].item<double>(), -step.lr * gradient[at].item<double>());
  check_length(checker, step, what);
  checker.expect(!close(used, seen.carried), "step before backward", what,
                 "The weights moved by the gradients that were there before this call. The order is: forget, "
                 "forward, loss, backward, then move.");
  const auto rest = used - gradient;
  const auto expect_unlike = [&](const Tensor& other, const std::string& name, const std::string& meaning) {
    checker.expect(std::isnan(ratio(rest, other)), name, what, meaning);
  };
  // All of what was carried over, or a part of the parameters has it.
  const auto apart = rest.abs() > 1e-6 * rest.abs().max();
  checker.expect(
      !close(rest.masked_select(apart), seen.carried.masked_select(apart)), "gradients pile up", what,
      "The step is that of this batch's gradient and of what was in .grad() before. backward() adds "
      "to .grad(): that is how a batch can be made of several parts. Forget all old gradients "
      "before every step with model->zero_grad().");
  if (step.last) {
    expect_unlike(*step.last, "momentum",
                  "The step is that of this batch's gradient and a part of the step before. This lesson's "
                  "update is w - lr * gradient: an optimizer must have no momentum.");
  }
  expect_unlike(seen.before, "weight decay",
                "The step is that of this batch's gradient and a part of the weights themselves. This "
                "lesson's update is w - lr * gradient: an optimizer must have no weight_decay.");
  const auto moved = used != 0;
  checker.expect(!close(used.masked_select(moved), gradient.masked_select(moved)), "parameters left out",
                 what,
                 fmt::format("{} of {} weights did not move, all others are right. Go over all of "
                             "model->parameters(): weights and biases of all 16 layers.",
                             used.numel() - moved.sum().item<int64_t>(), used.numel()));
  checker.fail("wrong gradient", what,
               "The weights moved in another direction than their gradients of this batch's loss. Is "
               "backward() called on the loss of this input and this target, and on nothing else? Is the "
               "update w - lr * gradient for every parameter, and nothing more?");
}

/// What a right step does besides.
void check_manners(Checker& checker, const Step& step, const Seen& seen) {
  checker.expect(torch::equal(seen.input, step.input) && torch::equal(seen.target, step.target),
                 "samples changed", fmt::format("call {}: after train_step the batch differs", step.number),
                 "Input and target belong to the caller. An operation whose name ends in _, such as sub_, "
                 "changes the tensor itself.");
  const auto expect_once = [&](const std::vector<int64_t>& passes, const std::string& name) {
    const auto what = fmt::format("call {}: {} samples went {} for a batch of {}", step.number,
                                  mlp::sum(passes), name, step.batch);
    checker.expect(mlp::sum(passes) <= step.batch, name + " twice", what,
                   "One forward and one backward are enough for a step: the loss to return is the one that "
                   "backward() started from.");
  };
  expect_once(seen.passes.forward, "forward");
  expect_once(seen.passes.backward, "backward");
  checker.expect(seen.records, "autograd left off",
                 fmt::format("after call {} autograd no longer records, for the whole thread", step.number),
                 "A torch::NoGradGuard that lives in the function ends with it. GradMode::set_enabled(false) "
                 "must be undone.");
}

/// Changes single weights a little, up and down, and looks at what the loss does: no calculus.
double check_finite_differences(Checker& checker, const Step& step, const Seen& seen) {
  const double largest = step.used.abs().max().item<double>(), nudge = 1e-8;
  double apart = 0;
  auto weights = seen.before.clone();
  const int64_t squared = step.shape.dim * step.shape.dim, layer = squared + step.shape.dim;
  for (int64_t k = 0; k < kDepth * 4; ++k) {  // three weights and a bias of each layer
    const auto salt = static_cast<uint64_t>(k);
    const int64_t at = k / 4 * layer + (k % 4 < 3 ? checker.draw_between(salt, 0, squared - 1)
                                                  : checker.draw_between(salt, squared, layer - 1));
    const double was = weights[at].item<double>();
    const auto loss_with = [&](double value) {
      weights[at] = value;
      return mlp::loss_of(weights, step.shape, step.input, step.target);
    };
    const double up = loss_with(was + nudge), down = loss_with(was - nudge);
    weights[at] = was;
    const double slope = (up - down) / (2 * nudge), found = step.used[at].item<double>();
    apart = std::max(apart, std::abs(slope - found));
    checker.expect(
        std::abs(slope - found) <= 1e-4 * largest, "wrong gradient",
        fmt::format("{}: nudging the weight changes the loss by {:.6g} a unit, the step used {:.6g}",
                    mlp::place(step.shape, at), slope, found),
        "The gradient of a weight is how much the loss changes with it.");
  }
  return apart / largest;
}

Step step_of(const Setup& setup, const Call& call, size_t index, const Seen& seen) {
  Step step{.number = index + 1, .shape = setup.shape, .batch = setup.batch, .lr = call.lr};
  const auto begin = static_cast<int64_t>(index) * setup.batch;
  step.input = setup.samples.input(begin, setup.batch);
  step.target = setup.samples.target(begin, setup.batch);
  step.gradient = mlp::gradient_of(seen.before, setup.shape, step.input, step.target);
  step.used = (seen.before - seen.after) / call.lr;
  return step;
}

std::vector<Seen> check_calls(const Seam& seam, Checker& checker, const std::vector<Setup>& setups,
                              const std::vector<Call>& calls) {
  const auto all = run_steps(seam, checker, setups, calls);
  std::vector<std::optional<Tensor>> last(setups.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto& seen = all[i];
    auto& of_model = last[calls[i].model];
    auto step = step_of(setups[calls[i].model], calls[i], i, seen);
    step.last = of_model;
    check_loss(checker, step, seen);
    const bool stands = step.used.abs().max().item<double>() == 0;
    if (stands && i == 0) explain_standstill(seam, checker, setups[0], step, seen);
    checker.expect(!stands, "state kept between calls",
                   fmt::format("call {}, on model {} of {}: no weight moved; in the calls before it the "
                               "weights moved as they should",
                               i + 1, calls[i].model + 1, setups.size()),
                   "Something of an earlier call is still used. A static optimizer, or a static list of "
                   "parameters, belongs to the first model: make it from the model of this call.");
    check_direction(checker, step, seen);
    check_manners(checker, step, seen);
    of_model = step.used;
  }
  return all;
}

}  // namespace

void check_step(const Seam& seam, Checker& checker) {
  const auto setup = make_setup(checker, 16, 8, 5);
  const auto seen = check_calls(seam, checker, {setup}, {{}}).front();
  const double apart = check_finite_differences(checker, step_of(setup, {}, 0, seen), seen);
  checker.proved(fmt::format(
      "the gradient that moved the weights is the slope of the loss, by finite differences in all 16 layers "
      "(largest difference {:.0e} of the largest slope)",
      apart));
  check_calls(seam, checker, {setup},
              {{}, {}, {.gradients = kNone}, {.gradients = 1.0}, {.gradients = kNone}});
  checker.proved("a step uses its own gradient and nothing of those before it");

  const auto rate = [&](uint64_t salt) {
    return static_cast<double>(checker.draw_between(salt, 1, 400)) * 1e-5;
  };
  const auto draw_setup = [&](uint64_t salt) {
    return make_setup(checker, checker.draw_between(salt, 17, 37), checker.draw_between(salt + 1, 9, 33), 6);
  };
  check_calls(seam, checker, {draw_setup(20), draw_setup(22)},
              {{0, rate(24)},
               {1, rate(25), 1.0},
               {0, rate(26)},
               {1, rate(27), kNone},
               {0, rate(28), kNone},
               {1, rate(29)}});
  checker.proved(
      "the same for two models in alternation, with widths, batches and learning rates from the seed");
}

}  // namespace lab::baseline
