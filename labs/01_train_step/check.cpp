#include "01_train_step/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lab/mlp.h"
#include "lab/torch_guard.h"

namespace lab::baseline {

namespace {

constexpr int64_t kDepth = 16;
constexpr double kLearningRate = 0.02;

using mlp::close;
using mlp::copy_of;
using mlp::flat_weights;
using mlp::gradient_of;
using mlp::loss_of;
using mlp::make_samples;
using mlp::place;
using mlp::Samples;

lockstep::FullMLP make_model(const Checker& checker, int64_t dim) {
  return mlp::make_model(checker, dim, kDepth);
}

void check_loss(Checker& checker, double loss, double before, double after, int64_t batch, int64_t dim) {
  if (close(loss, before)) return;
  const auto what =
      fmt::format("train_step returned {:.6g}, the mean squared error of its batch is {:.6g}", loss, before);
  checker.expect(loss != 0, "nothing computed", what,
                 "Go forward with model->forward(input), take the mean of (output - target) squared, and "
                 "return it as a number: loss.item<double>().");
  checker.expect(std::isfinite(loss), "loss is no number", what,
                 "Something was divided by zero, or a tensor was used before it had values.");
  for (const int64_t times : {batch, dim, batch * dim}) {
    checker.expect(
        !close(loss, before * static_cast<double>(times)), "sum instead of mean", what,
        fmt::format("It is {} times too large: take the mean over all {} x {} numbers. A sum grows "
                    "with the batch, and the step with it.",
                    times, batch, dim));
  }
  checker.expect(
      !close(loss, after), "loss of the moved weights", what,
      "That is the loss after the update. Return the one that backward() started from: one forward "
      "a step is enough.");
  checker.fail("wrong loss", what,
               "The loss is the mean over all numbers of (model->forward(input) - target) squared.");
}

/// The weights did not move in the first step: why?
[[noreturn]] void tell_standstill(const Seam& seam, Checker& checker, lockstep::FullMLP& model,
                                  const Samples& samples, const torch::Tensor& gradient) {
  const auto weight = model->parameters()[0];
  const bool has_gradient =
      weight.grad().defined() && close(weight.grad().flatten(), gradient.narrow(0, 0, weight.numel()));
  const auto before = flat_weights(model);
  guard_torch(checker, "the second train_step", [&] {
    return seam.train_step(model, samples.input(8, 8), samples.target(8, 8), kLearningRate);
  });
  if (close(before - flat_weights(model), kLearningRate * gradient)) {
    checker.fail(
        "step before backward",
        "the first step moved no weight, the second one moved them by the first batch's gradient",
        "Gradients are there after backward(), and belong to the batch that made them. The order is: "
        "forget, forward, loss, backward, then move.");
  }
  if (has_gradient) {
    checker.fail("weights stand still",
                 "backward() has left the right gradients, but after train_step every weight is as it was",
                 "Change the parameters themselves, after backward() and before the gradients are forgotten: "
                 "for (auto& w : model->parameters()) w -= lr * w.grad();");
  }
  checker.fail("no backward",
               "the loss is right, but no weight has moved and the parameters hold no gradient of this batch",
               "loss.backward() leaves in every parameter's .grad() how the loss changes with it.");
}

void check_direction(Checker& checker, const lockstep::FullMLP& model, const torch::Tensor& used,
                     const torch::Tensor& gradient) {
  if (close(used, gradient)) return;
  const int64_t at = (used - gradient).abs().argmax().item<int64_t>();
  const auto what =
      fmt::format("{}: the weight moved by {:.6g}; lr {} times its gradient {:.6g}, downhill, is {:.6g}",
                  place(model, at), -kLearningRate * used[at].item<double>(), kLearningRate,
                  gradient[at].item<double>(), -kLearningRate * gradient[at].item<double>());
  checker.expect(!close(used, -gradient), "uphill", what,
                 "The gradient points to where the loss rises. Subtract it.");
  checker.expect(!close(used * kLearningRate, gradient), "no learning rate", what,
                 "The gradient says which way, not how far. Multiply it by lr.");
  const double times = used[at].item<double>() / gradient[at].item<double>();
  checker.expect(!close(used, times * gradient), "wrong step size", what,
                 fmt::format("The direction is right, the length is {:.6g} times what it should be. Does "
                             "something happen twice, or is the loss scaled before backward()?",
                             times));
  checker.fail("wrong gradient", what,
               "The weights moved in another direction than their gradients of this batch's loss. Is "
               "backward() called on the loss of this input and this target, and on nothing else?");
}

/// Changes single weights a little, up and down, and looks at what the loss does: no calculus.
double check_finite_differences(Checker& checker, const lockstep::FullMLP& before, const torch::Tensor& used,
                                const Samples& samples) {
  auto model = copy_of(before);
  const torch::NoGradGuard no_grad;
  const double largest = used.abs().max().item<double>(), nudge = 1e-6;
  double apart = 0;
  int64_t first = 0;
  for (const auto& parameter : model->named_parameters()) {
    auto numbers = parameter.value().flatten();  // the same memory
    for (uint64_t k = 0; k < (numbers.numel() > model->dim() ? 3 : 1); ++k) {
      const auto at = static_cast<int64_t>(checker.draw(static_cast<uint64_t>(first) * 8 + k) %
                                           static_cast<uint64_t>(numbers.numel()));
      const double was = numbers[at].item<double>();
      numbers[at] = was + nudge;
      const double up = loss_of(model, samples.input(0, 8), samples.target(0, 8));
      numbers[at] = was - nudge;
      const double down = loss_of(model, samples.input(0, 8), samples.target(0, 8));
      numbers[at] = was;
      const double slope = (up - down) / (2 * nudge), found = used[first + at].item<double>();
      apart = std::max(apart, std::abs(slope - found));
      checker.expect(std::abs(slope - found) <= 1e-4 * largest, "wrong gradient",
                     fmt::format("{}, element {}: nudging the weight changes the loss by {:.6g} a unit, the "
                                 "step used {:.6g}",
                                 parameter.key(), at, slope, found),
                     "The gradient of a weight is how much the loss changes with it.");
    }
    first += numbers.numel();
  }
  return apart / largest;
}

/// Two steps, looked at one by one.
void check_step(const Seam& seam, Checker& checker) {
  const int64_t dim = 16, batch = 8;
  const auto samples = make_samples(checker, 2 * batch, dim);
  auto model = make_model(checker, dim);
  const auto start = copy_of(model);
  const auto input = samples.input(0, batch), target = samples.target(0, batch);
  const auto first_gradient = gradient_of(model, input, target);
  const double before_loss = loss_of(model, input, target);
  const double loss = guard_torch(checker, "the first train_step",
                                  [&] { return seam.train_step(model, input, target, kLearningRate); });
  check_loss(checker, loss, before_loss, loss_of(model, input, target), batch, dim);
  const auto used = (flat_weights(start) - flat_weights(model)) / kLearningRate;
  if (used.abs().max().item<double>() == 0) tell_standstill(seam, checker, model, samples, first_gradient);
  check_direction(checker, model, used, first_gradient);
  const double apart = check_finite_differences(checker, start, used, samples);
  checker.proved(fmt::format(
      "the gradient that moved the weights is the slope of the loss, by finite differences in all 16 layers "
      "(largest difference {:.0e} of the largest slope)",
      apart));

  const auto before = flat_weights(model);
  const auto next_input = samples.input(batch, batch), next_target = samples.target(batch, batch);
  const auto second_gradient = gradient_of(model, next_input, next_target);
  guard_torch(checker, "the second train_step",
              [&] { return seam.train_step(model, next_input, next_target, kLearningRate); });
  const auto second_used = (before - flat_weights(model)) / kLearningRate;
  checker.expect(
      !close(second_used, first_gradient + second_gradient), "gradients pile up",
      "the second step moved the weights by the sum of the first batch's gradient and its own",
      "backward() adds to .grad(): that is how a batch can be made of several parts. Forget the old "
      "gradients before every step with model->zero_grad().");
  check_direction(checker, model, second_used, second_gradient);
  checker.proved("a second step uses its own gradient and nothing of the one before");
}

/// The losses of a plain loop; with `stays`, of one that takes the first batch for ever.
std::vector<double> golden_losses(const Checker& checker, const Samples& samples, int64_t dim, int64_t batch,
                                  bool stays) {
  auto model = make_model(checker, dim);
  std::vector<double> losses;
  for (int64_t begin = 0; begin < samples.inputs.size(0); begin += batch) {
    const int64_t count = std::min(batch, samples.inputs.size(0) - begin), from = stays ? 0 : begin;
    model->zero_grad();
    const auto loss = model->forward(samples.input(from, count), samples.target(from, count));
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (auto& weight : model->parameters()) weight.sub_(kLearningRate * weight.grad());
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void check_losses(const Seam& seam, Checker& checker, int64_t count) {
  const int64_t dim = 32, batch = 32;
  const auto samples = make_samples(checker, count, dim);
  const auto golden = golden_losses(checker, samples, dim, batch, false);
  auto model = make_model(checker, dim);
  const auto losses = guard_torch(checker, fmt::format("train on {} samples", count), [&] {
    return seam.train(model, samples.inputs, samples.targets, batch, kLearningRate);
  });
  const auto same_batch = golden_losses(checker, samples, dim, batch, true);
  for (size_t step = 0; step < std::min(losses.size(), golden.size()); ++step) {
    if (close(losses[step], golden[step])) continue;
    const auto what = fmt::format("step {} of {}: the loss is {:.9g}, expected {:.9g}{}", step, golden.size(),
                                  losses[step], golden[step], step > 0 ? "; all before it are right" : "");
    checker.expect(
        step == 0 || !close(losses[step], same_batch[step]), "same batch again", what,
        "That is the loss of the first batch once more. Step s takes the samples from s * batch on. "
        "Repeating one batch makes the loss fall, too: the model learns it by heart.");
    checker.fail(
        "other losses", what,
        "The steps are right one by one, so look at the loop: which samples does this step take, and "
        "is anything else done between two steps?");
  }
  const auto what = fmt::format("{} losses for {} samples in batches of {}, expected {}", losses.size(),
                                count, batch, golden.size());
  checker.expect(
      !(count % batch != 0 && losses.size() + 1 == golden.size()), "tail left out", what,
      fmt::format("{} samples are left after {} full batches. They are data, too: the last step takes "
                  "what is there.",
                  count % batch, count / batch));
  checker.expect(losses.size() == golden.size(), "wrong number of steps", what,
                 "train goes over all samples once, `batch` of them a step, and keeps every step's loss.");
  if (count % batch != 0) return;
  std::string line;
  for (const size_t step : {0, 1, 4, 9, 19, 29, 39, 49})
    line += fmt::format("{}{:.3f} ({})", line.empty() ? "" : "  ", losses[step], step + 1);
  checker.note("loss (in step): " + line);
  const auto mean_of_five = [&](size_t from) {
    double sum = 0;
    for (size_t i = from; i < from + 5; ++i) sum += losses[i] / 5;
    return sum;
  };
  checker.expect(mean_of_five(losses.size() - 5) < mean_of_five(0), "loss does not fall",
                 fmt::format("{:.4f} in the first five steps, {:.4f} in the last five", mean_of_five(0),
                             mean_of_five(losses.size() - 5)),
                 "Every sample is new, so a loss that falls has learned something.");
  checker.proved(
      fmt::format("the losses of {} steps are those of a plain loop, each of them; every sample is "
                  "new, and the loss falls from {:.2f} to {:.2f}",
                  golden.size(), mean_of_five(0), mean_of_five(losses.size() - 5)));
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_step(seam, checker);
  check_losses(seam, checker, 50 * 32);
  check_losses(seam, checker, 5 * 32 + 7);
  checker.proved("no sample is left out, even if the last batch is smaller");
}

}  // namespace lab::baseline
