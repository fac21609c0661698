#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "05_manual/parts.h"

namespace lab::manual {

namespace {

using mlp::close;
using mlp::ratio;
using torch::Tensor;

/// A value, or a gradient, that a certain mistake gives.
template <typename Value>
struct Suspect {
  Value value;
  std::string name, meaning;
};

bool is_zero(const Tensor& tensor) {
  return tensor.abs().max().item<double>() == 0;
}

/// The samples of each copy.
void check_shares(Checker& checker, const Step& step, const Seen& seen) {
  const int64_t samples = step.samples(), first = mlp::sum(seen.passes[0].forward),
                second = mlp::sum(seen.passes[1].forward), sum = first + second;
  const auto what = fmt::format("{}: {} went forward through the first copy, {} through the second",
                                step.name, counted(first, "sample"), second);
  checker.expect(first != samples || second != samples, "whole batch on both", what,
                 "Each copy does all the work: nothing is gained. Give each its share with narrow(0, begin, "
                 "length).");
  checker.expect(first > 0 && second > 0, "one copy does it all", what,
                 "Both copies take part: half of the samples each.");
  checker.expect(
      sum >= samples, "tail left out", what,
      fmt::format("{} went nowhere. Halves of an odd batch are not equal: the second share is what "
                  "the first one leaves.",
                  counted(samples - sum, "sample")));
  checker.expect(sum == samples, "samples seen twice", what,
                 "Each sample belongs to one copy, and each copy goes forward on its share once.");
  checker.expect(std::abs(first - second) <= 1, "uneven shares", what,
                 "Whoever has more samples keeps the other one waiting. Cut as evenly as possible.");
  checker.expect(first >= second, "rounded down", what,
                 "The first copy takes half of the samples, rounded up: (samples + 1) / 2.");
  const int64_t backward = mlp::sum(seen.passes[0].backward) + mlp::sum(seen.passes[1].backward);
  checker.expect(backward <= samples, "backward twice",
                 fmt::format("{}: {} went backward", step.name, counted(backward, "sample")),
                 "Each copy goes backward on its share once.");
}

/// Both copies moved, and alike.
void check_copies(Checker& checker, const Step& step, const Tensor& of_first, const Tensor& of_second,
                  const Seen& seen) {
  checker.expect(
      !is_zero(of_first) || !is_zero(of_second), "copies stand still",
      step.name + ": no weight of either copy has moved",
      "Cut the batch, go forward and backward on each copy's share, make one gradient of two, and "
      "move both copies by it. If other calls move theirs: is an optimizer or a list of parameters "
      "static?");
  checker.expect(!is_zero(of_second), "second copy left behind",
                 step.name + ": the first copy's weights moved, the second one's did not",
                 "Both copies must make the same step. Otherwise their next gradients are those of different "
                 "models.");
  checker.expect(!is_zero(of_first), "first copy left behind",
                 step.name + ": the second copy's weights moved, the first one's did not",
                 "Both copies must make the same step.");
  checker.expect(!seen.shares_memory, "copies share memory",
                 step.name + ": a weight of the first copy and one of the second are the same memory",
                 "Copies live in two processes later on. Move the weights of each in place; set_data() and "
                 "register_parameter() would tie them together.");
  if (torch::equal(seen.after.first, seen.after.second)) return;
  const int64_t half = step.half(), rest = step.samples() - half;
  const auto own = [&](int64_t begin, int64_t count) {
    return mlp::gradient_of(seen.before, step.shape, step.input.narrow(0, begin, count),
                            step.target.narrow(0, begin, count));
  };
  const int64_t at = (of_first - of_second).abs().argmax().item<int64_t>();
  const bool is_own = close(of_first, own(0, half)) && close(of_second, own(half, rest));
  const auto what =
      fmt::format("{}; {}: the first copy moved by {:.6g} times lr, the second by {:.6g}{}", step.name,
                  mlp::place(step.shape, at), of_first[at].item<double>(), of_second[at].item<double>(),
                  is_own ? ": each by the gradient of its own share" : "");
  checker.expect(!close(of_first, of_second), "copies drift apart", what,
                 "They differ by rounding, which depends on the order of operations. Compute the mean once, "
                 "and move both copies by that very tensor.");
  checker.fail("copies drift apart", what,
               "Autograd computes gradients locally: backward() knows the samples that went through this "
               "copy. Make one gradient out of both, and move both copies by that very tensor.");
}

/// Both moved alike: is it by the right gradient?
void check_gradient(Checker& checker, const Step& step, const Seen& seen, const Tensor& used) {
  const auto whole = mlp::gradient_of(seen.before, step.shape, step.input, step.target);
  if (close(used, whole)) return;
  const int64_t samples = step.samples(), half = step.half(), rest = samples - half;
  const double first = static_cast<double>(half) / static_cast<double>(samples), second = 1 - first;
  const auto of = [&](int64_t input, int64_t target, int64_t count) {
    return mlp::gradient_of(seen.before, step.shape, step.input.narrow(0, input, count),
                            step.target.narrow(0, target, count));
  };
  const auto of_first = of(0, 0, half), of_second = of(half, half, rest);
  const int64_t at = (used - whole).abs().argmax().item<int64_t>();
  const auto what = fmt::format(
      "{}, shares of {} and {}, lr {:.4g}; {}: the copies moved by {:.6g} times lr, the whole batch's "
      "gradient "
      "is {:.6g}",
      step.name, half, rest, step.lr, mlp::place(step.shape, at), used[at].item<double>(),
      whole[at].item<double>());
  const std::string forget =
      "backward() adds to .grad(). Both copies must forget: zero_grad() on each, before every step.";
  const std::vector<Suspect<Tensor>> suspects = {
      {of_first + of_second, "sum instead of mean",
       "The gradients were added: the step is as long as two. Each share's gradient is a mean already: take "
       "their mean, weighed by the samples of the shares."},
      {(of_first + of_second) / 2, "mean of means",
       fmt::format("That is the plain mean of the two gradients. A sample of the smaller share then counts "
                   "{:.3g} times as much as one of the larger. Weigh each share by its samples: {}/{} and "
                   "{}/{}.",
                   first / second, half, samples, rest, samples)},
      {second * of_first + first * of_second, "weights swapped",
       "The first share has the second one's weight, and the other way round."},
      {of_first, "gradient of one share",
       "Both copies moved by the first share's gradient alone: the second one's is missing, or it went over "
       "the same samples."},
      {of_second, "gradient of one share",
       "Both copies moved by the second share's gradient alone: the first one's is missing, or it went over "
       "the same samples."},
      {first * of_first, "gradient of one share", "The second share's part is missing."},
      {second * of_second, "gradient of one share", "The first share's part is missing."},
      {first * of_first + second * of(half, 0, rest), "targets of another share",
       "The second copy's outputs were compared with the first share's targets. Cut both in the same way."},
      {-whole, "uphill", "Subtract the gradient: it points to where the loss rises."},
  };
  for (const auto& [gradient, name, meaning] : suspects)
    checker.expect(!close(used, gradient), name, what, meaning);
  if (const double times = ratio(used, whole); !std::isnan(times)) {
    checker.expect(!close(times * step.lr, 1), "no learning rate", what, "Multiply the gradient by lr.");
    checker.fail("wrong step size", what,
                 fmt::format("The direction is right, the length is {:.4g} times what it should be. Is lr "
                             "this call's, is something done twice, or clipped?",
                             times));
  }
  const auto &of_old = seen.carried.first, &of_other = seen.carried.second;
  std::vector<Suspect<Tensor>> additions = {
      {of_old, "gradients pile up",
       "What the first copy had in .grad() before this step is in it, too. " + forget},
      {of_other, "gradients pile up",
       "What the second copy had in .grad() before this step is in it, too. " + forget},
      {first * of_old + second * of_other, "gradients pile up",
       "What both copies had in .grad() before this step is in it, too. " + forget},
      {seen.before, "weight decay", "A part of the weights themselves is in it. The update is w - lr * g."},
  };
  if (step.last) {
    additions.push_back(
        {*step.last, "momentum", "A part of the step before is in it. The update is w - lr * g."});
  }
  for (const auto& [gradient, name, meaning] : additions)
    checker.expect(std::isnan(ratio(used - whole, gradient)), name, what, meaning);
  const auto moved = used != 0;
  checker.expect(!close(used.masked_select(moved), whole.masked_select(moved)), "parameters left out", what,
                 fmt::format("{} of {} weights did not move, all others are right. Go over all of "
                             "parameters().",
                             used.numel() - moved.sum().item<int64_t>(), used.numel()));
  checker.fail(
      "wrong gradient", what,
      "Both copies moved alike, but not by the gradient of the batch's mean squared error. Does each "
      "share keep its inputs and its targets together? Are old gradients forgotten? Is every "
      "parameter averaged with its own partner?");
}

void check_loss(Checker& checker, const Step& step, const Seen& seen) {
  const int64_t samples = step.samples(), half = step.half(), rest = samples - half;
  const auto loss_by = [&](const Tensor& weights, int64_t begin, int64_t count) {
    return mlp::loss_of(weights, step.shape, step.input.narrow(0, begin, count),
                        step.target.narrow(0, begin, count));
  };
  const double whole = loss_by(seen.before, 0, samples), found = seen.loss;
  if (close(found, whole)) return;
  const double of_first = loss_by(seen.before, 0, half), of_second = loss_by(seen.before, half, rest);
  const double first = static_cast<double>(half) / static_cast<double>(samples), second = 1 - first;
  const auto what = fmt::format(
      "{}, shares of {} and {}: manual_step returned {:.6g}, the loss over the whole batch is {:.6g}",
      step.name, half, rest, found, whole);
  const std::vector<Suspect<double>> suspects = {
      {of_first + of_second, "sum instead of mean", "Both losses were added. Each is a mean over its share."},
      {(of_first + of_second) / 2, "mean of means",
       "Losses are weighed by the samples of their shares, as the gradients are."},
      {second * of_first + first * of_second, "weights swapped",
       "The first share's loss has the second one's weight, and the other way round."},
      {of_first, "loss of one share", "That is the first share's loss alone."},
      {of_second, "loss of one share", "That is the second share's loss alone."},
      {first * of_first, "loss of one share", "The second share's part is missing."},
      {second * of_second, "loss of one share", "The first share's part is missing."},
      {loss_by(seen.after.first, 0, samples), "loss of the moved weights",
       "That is the loss after the update. Return the one that backward() started from."},
  };
  for (const auto& [value, name, meaning] : suspects)
    checker.expect(!close(found, value), name, what, meaning);
  checker.fail("wrong loss", what, "The mean squared error over all samples, before the weights moved.");
}

}  // namespace

Tensor judge(Checker& checker, const Step& step, const Seen& seen) {
  const auto of_first = (seen.before - seen.after.first) / step.lr;
  const auto of_second = (seen.before - seen.after.second) / step.lr;
  check_copies(checker, step, of_first, of_second, seen);
  check_shares(checker, step, seen);
  check_gradient(checker, step, seen, of_first);
  check_loss(checker, step, seen);
  checker.expect(torch::equal(seen.input, step.input) && torch::equal(seen.target, step.target),
                 "samples changed", step.name + ": after manual_step the batch differs",
                 "Input and target belong to the caller. An operation whose name ends in _, such as sub_, "
                 "changes the tensor itself.");
  checker.expect(seen.records, "autograd left off",
                 step.name + ": afterwards autograd no longer records, for the whole thread",
                 "A torch::NoGradGuard that lives in the function ends with it. GradMode::set_enabled(false) "
                 "must be undone.");
  return of_first;
}

}  // namespace lab::manual
