#include "05_manual/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "lab/mlp.h"
#include "lab/torch_guard.h"

namespace lab::manual {

namespace {

using mlp::close;
using mlp::flat_weights;
using mlp::gradient_of;
using mlp::loss_of;

constexpr int64_t kDim = 16, kDepth = 4;
constexpr double kLearningRate = 0.05;

/// A layer that changes nothing and counts the samples that go through it to be learned from.
class CountingImpl : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& x) {
    if (torch::GradMode::is_enabled()) samples += x.size(0);
    return x;
  }
  int64_t samples = 0;
};
TORCH_MODULE(Counting);

/// A copy of the check's model, whose samples are counted.
struct Copy {
  explicit Copy(const Checker& checker) : model(mlp::make_model(checker, kDim, kDepth)) {
    model->layers()->push_back("counting", counting);
  }
  lockstep::FullMLP model;
  Counting counting;
};

bool is_zero(const torch::Tensor& tensor) {
  return tensor.abs().max().item<double>() == 0;
}

/// The samples of each copy.
struct Shares {
  int64_t first, second;
  std::string text(int64_t samples) const {
    return fmt::format(
        "a batch of {} samples: the first copy went through {} of them, the second one through {}", samples,
        first, second);
  }
};

void check_shares(Checker& checker, const Shares& shares, int64_t samples) {
  const auto what = shares.text(samples);
  checker.expect(
      !(shares.first == samples && shares.second == samples), "whole batch on both", what,
      "The gradient comes out right, and each copy does all the work: nothing is gained. Give each "
      "its share with narrow(0, begin, length).");
  checker.expect(shares.first > 0 && shares.second > 0, "one copy does it all", what,
                 "Both copies take part: half of the samples each.");
  const int64_t sum = shares.first + shares.second;
  checker.expect(
      sum >= samples, "tail left out", what,
      fmt::format("{} of the samples went nowhere. Halves of an odd batch are not equal: the second "
                  "share is what the first one leaves.",
                  samples - sum));
  checker.expect(sum == samples, "samples seen twice", what,
                 "Each sample belongs to one copy, and each copy goes forward on its share once.");
  checker.expect(std::abs(shares.first - shares.second) <= 1, "uneven shares", what,
                 "Whoever has more samples keeps the other one waiting. Cut as evenly as possible.");
}

/// Both moved alike: is it by the right gradient?
void check_gradient(Checker& checker, const lockstep::FullMLP& start, const torch::Tensor& used,
                    const torch::Tensor& whole, const torch::Tensor& of_first, const torch::Tensor& of_second,
                    const Shares& shares) {
  if (close(used, whole)) return;
  const auto samples = static_cast<double>(shares.first + shares.second);
  const double first = static_cast<double>(shares.first) / samples,
               second = static_cast<double>(shares.second) / samples;
  const int64_t at = (used - whole).abs().argmax().item<int64_t>();
  const auto told = fmt::format(
      "{} samples, {} and {}; {}: the copies moved by {:.6g} times lr, the whole batch's gradient is {:.6g}",
      shares.first + shares.second, shares.first, shares.second, mlp::place(start, at),
      used[at].item<double>(), whole[at].item<double>());
  checker.expect(!close(used, of_first + of_second) && !close(used, 2 * whole), "sum instead of mean", told,
                 "The gradients were added: the step is as long as two. Each share's gradient is a mean "
                 "already: take their mean, weighed by the samples of the shares.");
  checker.expect(
      !close(used, (of_first + of_second) / 2), "mean of means", told,
      fmt::format("That is the plain mean of the two gradients. A sample of the smaller share then "
                  "counts {:.3g} times as much as one of the larger. Weigh each share by its "
                  "samples: {}/{} and {}/{}.",
                  std::max(first, second) / std::min(first, second), shares.first, samples, shares.second,
                  samples));
  checker.expect(!close(used, second * of_first + first * of_second), "weights swapped", told,
                 "The first share has the second one's weight, and the other way round.");
  checker.expect(!close(used, -whole), "uphill", told,
                 "Subtract the gradient: it points to where the loss rises.");
  const double times = used[at].item<double>() / whole[at].item<double>();
  checker.expect(!close(used, times * whole), "wrong step size", told,
                 fmt::format("The direction is right, the length is {:.4g} times what it should be.", times));
  checker.fail(
      "wrong gradient", told,
      "Both copies moved alike, but not by the gradient of the batch's mean squared error. Does each "
      "share keep its inputs and its targets together? Are old gradients forgotten?");
}

void check_loss(Checker& checker, double loss, double whole, double of_first, double of_second,
                const Shares& shares) {
  if (close(loss, whole)) return;
  const auto what = fmt::format(
      "{} samples, {} and {}: manual_step returned {:.6g}, the loss over the whole batch "
      "is {:.6g}",
      shares.first + shares.second, shares.first, shares.second, loss, whole);
  checker.expect(!close(loss, of_first + of_second), "sum instead of mean", what,
                 "Both losses were added. Each is a mean over its share.");
  checker.expect(!close(loss, (of_first + of_second) / 2), "mean of means", what,
                 "Losses are weighed by the samples of their shares, as the gradients are.");
  checker.expect(!close(loss, of_first) && !close(loss, of_second), "loss of one share", what,
                 "That is the loss of one copy's share. Which mean of both is the whole batch's?");
  checker.fail("wrong loss", what, "The mean squared error over all samples, before the weights moved.");
}

/// One step, from equal copies.
void check_one_step(const Seam& seam, Checker& checker, int64_t samples) {
  const auto data = mlp::make_samples(checker, samples, kDim);
  Copy first(checker), second(checker);
  const auto start = mlp::make_model(checker, kDim, kDepth);
  const auto before = flat_weights(start);
  const double loss = guard_torch(checker, fmt::format("manual_step on {} samples", samples), [&] {
    return seam.manual_step(first.model, second.model, data.inputs, data.targets, kLearningRate);
  });
  const auto of_first = (before - flat_weights(first.model)) / kLearningRate;
  const auto of_second = (before - flat_weights(second.model)) / kLearningRate;
  checker.expect(!(is_zero(of_first) && is_zero(of_second)), "copies stand still",
                 fmt::format("after manual_step on {} samples no weight of either copy has moved", samples),
                 "Cut the batch, go forward and backward on each copy's share, make one gradient of two, and "
                 "move both copies by it.");
  checker.expect(!is_zero(of_second), "second copy left behind",
                 "the first copy's weights moved, the second one's did not",
                 "Both copies must make the same step: else they are no copies any more, and their next "
                 "gradients are of different models.");
  checker.expect(!is_zero(of_first), "first copy left behind",
                 "the second copy's weights moved, the first one's did not",
                 "Both copies must make the same step.");
  const Shares shares{first.counting->samples, second.counting->samples};
  const int64_t cut = std::clamp<int64_t>(shares.first, 1, samples - 1);
  const auto own_first = gradient_of(start, data.input(0, cut), data.target(0, cut));
  const auto own_second = gradient_of(start, data.input(cut, samples - cut), data.target(cut, samples - cut));
  if (!torch::equal(of_first, of_second)) {
    const int64_t at = (of_first - of_second).abs().argmax().item<int64_t>();
    const bool is_own = close(of_first, own_first) && close(of_second, own_second);
    checker.fail(
        "copies drift apart",
        fmt::format("{} samples; {}: the first copy moved by {:.6g} times lr, the second by {:.6g}{}",
                    samples, mlp::place(start, at), of_first[at].item<double>(), of_second[at].item<double>(),
                    is_own ? ": each by the gradient of its own share" : ""),
        "Autograd computes gradients locally: backward() knows the samples that went through this copy. "
        "Make one gradient out of both, and move both copies by that very tensor.");
  }
  check_shares(checker, shares, samples);
  const auto whole = gradient_of(start, data.inputs, data.targets);
  check_gradient(checker, start, of_first, whole, own_first, own_second, shares);
  check_loss(checker, loss, loss_of(start, data.inputs, data.targets),
             loss_of(start, data.input(0, cut), data.target(0, cut)),
             loss_of(start, data.input(cut, samples - cut), data.target(cut, samples - cut)), shares);
}

/// Several steps with batches of several sizes, beside one model that sees all samples.
void check_many_steps(const Seam& seam, Checker& checker) {
  constexpr int64_t kSteps = 20;
  const auto data = mlp::make_samples(checker, kSteps * 8, kDim);
  auto first = mlp::make_model(checker, kDim, kDepth), second = mlp::make_model(checker, kDim, kDepth);
  for (const auto& copy : {first, second}) {
    for (auto& weight : copy->parameters()) weight.mutable_grad() = torch::ones_like(weight);
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t samples = 2 + static_cast<int64_t>(checker.draw(static_cast<uint64_t>(step)) % 7);
    const auto input = data.input(step * 8, samples), target = data.target(step * 8, samples);
    const auto before = flat_weights(first), gradient = gradient_of(first, input, target);
    guard_torch(checker, fmt::format("manual_step {} of {}", step, kSteps),
                [&] { return seam.manual_step(first, second, input, target, kLearningRate); });
    const auto used = (before - flat_weights(first)) / kLearningRate;
    checker.expect(
        step > 0 || close(used, gradient), "gradients pile up",
        "the copies had gradients of a step before when manual_step began, and moved by them, too",
        "backward() adds to .grad(). Both copies must forget: zero_grad() on each, before every step.");
    checker.expect(
        close(used, gradient), "wrong gradient",
        fmt::format("in step {}, on {} samples, the copies did not move by the whole batch's gradient; "
                    "all steps before it are right",
                    step, samples),
        "Is something left over from the step before, on one of the copies?");
    checker.expect(torch::equal(flat_weights(first), flat_weights(second)), "copies drift apart",
                   fmt::format("after step {} the copies' weights differ", step),
                   "Compute the mean once, and move both copies by that very tensor.");
  }
  checker.proved(fmt::format(
      "in {} steps with 2 to 8 samples each step is that of one model on the whole batch", kSteps));
}

/// The same in floats: copies have equal bits, and differ from one model by rounding alone.
void check_bits(const Seam& seam, Checker& checker) {
  const auto data = mlp::make_samples(checker, 20 * 7, kDim);
  lockstep::FullMLP first(kDim, kDepth, checker.seed()), second(kDim, kDepth, checker.seed()),
      whole(kDim, kDepth, checker.seed()), alone(kDim, kDepth, checker.seed());
  const auto plain_step = [](lockstep::FullMLP& model, const torch::Tensor& input,
                             const torch::Tensor& target) {
    model->zero_grad();
    model->forward(input, target).backward();
    const torch::NoGradGuard no_grad;
    for (auto& weight : model->parameters()) weight.sub_(kLearningRate * weight.grad());
  };
  for (int64_t step = 0; step < 20; ++step) {
    const auto input = data.input(step * 7, 7).to(torch::kFloat),
               target = data.target(step * 7, 7).to(torch::kFloat);
    guard_torch(checker, fmt::format("manual_step {} in floats", step),
                [&] { return seam.manual_step(first, second, input, target, kLearningRate); });
    plain_step(whole, input, target);
    plain_step(alone, input.narrow(0, 0, 4), target.narrow(0, 0, 4));
    checker.expect(
        torch::equal(flat_weights(first), flat_weights(second)), "copies drift apart",
        fmt::format("in floats, after step {}, the copies' weights differ by up to {:.1e}", step,
                    (flat_weights(first) - flat_weights(second)).abs().max().item<double>()),
        "Rounding depends on the order of operations. Compute the mean once, and move both copies by "
        "that very tensor.");
  }
  const auto apart = [&](const lockstep::FullMLP& one) {
    return (flat_weights(one) - flat_weights(whole)).abs().max().item<double>();
  };
  checker.note(
      fmt::format("after 20 steps in floats, largest difference of a weight: between the copies 0; between a "
                  "copy and one model on all samples {:.1e}; between that and a copy that nobody averages "
                  "{:.1e}",
                  apart(first), apart(alone)));
  checker.expect(apart(first) < 1e-4, "wrong gradient",
                 fmt::format("in floats, after 20 steps, a copy's weights differ from one model's by {:.1e}",
                             apart(first)),
                 "That is more than rounding. Is something computed in whole numbers?");
  checker.proved("both copies have the same bits after every step, in floats, too");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_one_step(seam, checker, 8);
  checker.proved("two halves of a batch give the whole batch's gradient and loss");
  for (const int64_t samples : {7, 3, 2, 5}) check_one_step(seam, checker, samples);
  checker.proved("so do unequal shares, weighed by their samples; no sample is left out or seen twice");
  check_many_steps(seam, checker);
  check_bits(seam, checker);
}

}  // namespace lab::manual
