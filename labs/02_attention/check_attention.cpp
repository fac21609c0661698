#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "02_attention/parts.h"
#include "lab/tensor_data.h"
#include "lab/torch_guard.h"

namespace lab::attention {

namespace {

using torch::Tensor;

/// Query, key and value, each [B, heads, T, D].
struct Input {
  Tensor query, key, value;

  int64_t length() const { return query.size(2); }
  int64_t width() const { return query.size(3); }
  std::string text() const {
    return fmt::format("batch {}, {}, {}, width {}", query.size(0), counted(query.size(1), "head"),
                       counted(length(), "position"), width());
  }
};

/// `size`: that of the numbers of query and key.
Input make_input(const Checker& checker, std::vector<int64_t> shape, double size = 1) {
  auto numbers =
      at::detail::createCPUGenerator(checker.draw(static_cast<uint64_t>(shape[2] * 100 + shape[3])));
  // As a model hands them: views of a tensor in which heads come after positions.
  std::swap(shape[1], shape[2]);
  const auto draw = [&] { return torch::randn(shape, numbers, torch::kDouble).transpose(1, 2); };
  return {size * draw(), size * draw(), draw()};
}

/// What a call gave.
struct Output {
  Tensor out;
  Input after;      ///< Query, key and value afterwards.
  Input gradients;  ///< Of the result's sum, weighed by weigh().
};

/// Different numbers in a row, so that no two positions count the same in a gradient.
Tensor weigh(const Tensor& like) {
  return torch::linspace(-1, 1.5, like.numel(), like.options()).view(like.sizes());
}

std::vector<Output> run_attention(const Seam& seam, Checker& checker, const std::vector<Input>& inputs) {
  return checker.in_child([&] {
    std::vector<Output> all;
    for (const auto& input : inputs) {
      const auto leaf = [](const Tensor& tensor) { return tensor.clone().set_requires_grad(true); };
      const Input leaves{leaf(input.query), leaf(input.key), leaf(input.value)};
      auto& one = all.emplace_back();
      guard_torch(checker, "causal_attention, " + input.text(), [&] {
        one.out = seam.causal_attention(leaves.query, leaves.key, leaves.value);
        if (one.out.defined() && one.out.requires_grad() && one.out.sizes() == input.value.sizes())
          (one.out * weigh(one.out)).sum().backward();
      });
      one.after = leaves;
      one.gradients = {leaves.query.grad(), leaves.key.grad(), leaves.value.grad()};
    }
    return all;
  });
}

/// What the loop's rule may be: a scale, and how many positions position t looks at.
struct Rule {
  double scale = 1;
  std::function<int64_t(int64_t)> sees = [](int64_t t) { return t + 1; };
};

/// What is right, one position after the other: of the keys and values after it nothing is ever touched. The
/// gradients are those of weigh(result), by the rules for products and softmax, without autograd.
Output reference(const Input& in, const Rule& rule) {
  Output right{torch::empty_like(in.value), {}, {}};
  right.gradients = {torch::zeros_like(in.query), torch::zeros_like(in.key), torch::zeros_like(in.value)};
  const auto slopes = weigh(in.value);
  for (int64_t t = 0; t < in.length(); ++t) {
    const int64_t count = std::min(rule.sees(t), in.length());
    const auto at = [&](const Tensor& tensor) { return tensor.narrow(2, t, 1); };
    const auto seen = [&](const Tensor& tensor) { return tensor.narrow(2, 0, count); };
    const auto weights =
        torch::softmax(rule.scale * torch::matmul(at(in.query), seen(in.key).transpose(-2, -1)), -1);
    at(right.out).copy_(torch::matmul(weights, seen(in.value)));
    const auto of_weights = torch::matmul(at(slopes), seen(in.value).transpose(-2, -1));
    const auto of_scores = rule.scale * weights * (of_weights - (weights * of_weights).sum(-1, true));
    at(right.gradients.query).copy_(torch::matmul(of_scores, seen(in.key)));
    seen(right.gradients.key).add_(torch::matmul(of_scores.transpose(-2, -1), at(in.query)));
    seen(right.gradients.value).add_(torch::matmul(weights.transpose(-2, -1), at(slopes)));
  }
  return right;
}

bool same(const Tensor& one, const Tensor& other) {
  return (one - other).abs().max().item<double>() <= 1e-6;  // false for NaN
}

/// The same with other numbers at one position.
Tensor edited(const Tensor& tensor, int64_t position) {
  auto copy = tensor.clone();
  copy.narrow(2, position, 1) += 1;
  return copy;
}

/// The positions of the result that differ.
std::vector<int64_t> differing(const Tensor& one, const Tensor& other) {
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < one.size(2); ++t) {
    if (!torch::equal(one.narrow(2, t, 1), other.narrow(2, t, 1))) positions.push_back(t);
  }
  return positions;
}

void check_form(Checker& checker, const Input& in, const Output& one) {
  checker.expect(
      one.out.defined() && one.out.sizes() == in.value.sizes(), "wrong shape",
      fmt::format("for [{}] the result is [{}]", fmt::join(in.value.sizes(), ", "),
                  one.out.defined() ? fmt::format("{}", fmt::join(one.out.sizes(), ", ")) : "undefined"),
      "One vector for each position of each head, as wide as the values.");
  checker.expect(one.out.scalar_type() == in.value.scalar_type(), "wrong type",
                 fmt::format("for {} the result is {}", torch::toString(in.value.scalar_type()),
                             torch::toString(one.out.scalar_type())),
                 "The result has the type of the values. Make masks and scales in that type, too.");
  checker.expect(torch::equal(one.after.query, in.query) && torch::equal(one.after.key, in.key) &&
                     torch::equal(one.after.value, in.value),
                 "input changed", in.text() + ": after the call query, key or value differ",
                 "They belong to the caller, and backward() needs them. An operation whose name ends in _ "
                 "changes the tensor itself.");
}

/// NaN and infinities.
void check_numbers(Checker& checker, const Tensor& out) {
  if (torch::isfinite(out).all().item<bool>()) return;
  const bool is_first_alone =
      out.size(2) > 1 && torch::isfinite(out.narrow(2, 1, out.size(2) - 1)).all().item<bool>();
  checker.expect(
      !is_first_alone, "mask off by one", "position 0 gives NaN, the others give numbers",
      "Position 0 may look at itself and at nobody else. If its own score is masked as well, nothing is "
      "left to weigh. Mask the positions behind: triu(1), which leaves the diagonal.");
  checker.fail("no numbers", "the result holds NaN or infinities",
               "A row of scores that is masked as a whole gives NaN, and so does 0 times infinity: mask with "
               "masked_fill, not by multiplying.");
}

/// Weights of a query sum to 1: with values of 1 everywhere the result is 1.
void check_sums(Checker& checker, const Input& in, const Tensor& out, const Tensor& sums) {
  if (same(sums, torch::ones_like(sums))) return;
  checker.expect(!torch::equal(out, sums), "value ignored", "with other values the result stays as it is",
                 "Weights times values: the result is a mean of the rows of `value`.");
  const auto flat = (sums - 1).abs().argmax().item<int64_t>();
  const auto what = fmt::format("the weights of position {} sum to {:.6g}, expected 1",
                                flat / in.width() % in.length(), sums.flatten()[flat].item<double>());
  const auto scores =
      torch::matmul(in.query, in.key.transpose(-2, -1)) / std::sqrt(static_cast<double>(in.width()));
  checker.expect(!same(out, torch::matmul(torch::softmax(scores, -1).tril(), in.value)), "mask after softmax",
                 what,
                 "Setting weights to zero after the softmax leaves less than 1. Mask the scores, before it.");
  const auto masked = scores + torch::full_like(scores, -1e300).triu(1);
  checker.expect(
      !same(out, torch::matmul(torch::softmax(masked, -2), in.value)), "softmax over the wrong dimension",
      what,
      "The last dimension of the scores is the keys: each query's weights over them sum to 1. That "
      "is softmax(scores, -1).");
  checker.fail("weights do not sum to 1", what,
               "The weights of one query, over the keys that it sees, come from softmax(scores, -1). Over "
               "which dimension is yours, and is anything done to the weights after it?");
}

/// Which positions look at which.
void check_view(const Seam& seam, Checker& checker, const Input& in) {
  const int64_t length = in.length(), at = 3;
  const auto all = run_attention(seam, checker,
                                 {in,
                                  {in.query, in.key, torch::ones_like(in.value)},
                                  {in.query, in.key, edited(in.value, 0)},
                                  {edited(in.query, at), edited(in.key, at), edited(in.value, at)},
                                  {in.query, in.key, edited(in.value, at)}});
  const auto& out = all[0].out;
  check_form(checker, in, all[0]);
  check_numbers(checker, out);
  check_sums(checker, in, out, all[1].out);
  const auto changed = differing(out, all[3].out);
  const auto what = fmt::format("of {} positions, number {} was edited; the result changed at {}", length, at,
                                fmt::join(changed, ", "));
  const bool looks_back = differing(out, all[2].out).size() > 1;
  checker.expect(
      looks_back || changed.empty() || changed.front() >= at, "mask upside down", what,
      "Each position looks at those after it, and at none before. Scores of later keys are masked: "
      "triu(1), above the diagonal of [query, key].");
  checker.expect(
      looks_back, "no attention", "another value at position 0 changes the result at no other position",
      "Each position must mix in the values before it. Scores are matmul(query, key.transpose(-2, -1)), "
      "their softmax weighs the values.");
  checker.expect(
      changed.empty() || changed.front() >= at - 1, "sees the future", what,
      "Positions before the edited one have looked at it. In training they would see the token that they "
      "should guess, learn to copy it, and the loss would go to zero. Scores of later positions must be "
      "minus infinity before the softmax.");
  checker.expect(
      changed.empty() || changed.front() >= at, "mask off by one", what,
      "The position just before sees one ahead: the very token that it should guess. Mask from the first "
      "diagonal above the main one on: triu(1).");
  const auto own = differing(out, all[4].out);
  checker.expect(!own.empty() && own.front() == at, "mask off by one",
                 fmt::format("another value at position {} changes nothing at position {} itself", at, at),
                 "A position sees itself: it is the last token that is known. triu(1) leaves the diagonal.");
}

/// The results are right; are the gradients?
void check_gradients(Checker& checker, const Input& in, const Output& found, const Output& right) {
  const std::vector<std::tuple<std::string, Tensor, Tensor>> all = {
      {"query", found.gradients.query, right.gradients.query},
      {"key", found.gradients.key, right.gradients.key},
      {"value", found.gradients.value, right.gradients.value}};
  for (const auto& [name, gradient, expected] : all) {
    if (!gradient.defined() && in.length() == 1 && name != "value") continue;  // one weight, always 1
    checker.expect(gradient.defined(), "gradient cut off",
                   fmt::format("{}: after backward() the {} has no gradient", in.text(), name),
                   "detach(), item(), data() and NoGradGuard cut off the way back.");
    const auto at = (gradient - expected).abs().argmax().item<int64_t>();
    checker.expect(
        same(gradient, expected), "wrong gradient",
        fmt::format("{}: the result is right, but in the gradient of the {} a number is {:.6g}, "
                    "expected {:.6g}",
                    in.text(), name, gradient.flatten()[at].item<double>(),
                    expected.flatten()[at].item<double>()),
        "Something on the way is computed outside of autograd: detach(), data(), a NoGradGuard, or "
        "a custom function. Then the model trains by other gradients than those of its loss.");
  }
}

void check_values(Checker& checker, const Input& in, const Output& found) {
  check_form(checker, in, found);
  const auto width = static_cast<double>(in.width()), length = static_cast<double>(in.length()),
             scale = 1 / std::sqrt(width);
  const auto right = reference(in, {scale});
  if (same(found.out, right.out)) return check_gradients(checker, in, found, right);
  const auto flat = (found.out - right.out).abs().argmax().item<int64_t>();
  const auto what =
      fmt::format("{}: position {} gives {:.6g}, expected {:.6g}", in.text(), flat / in.width() % in.length(),
                  found.out.flatten()[flat].item<double>(), right.out.flatten()[flat].item<double>());
  struct Suspect {
    Rule rule;
    std::string name, meaning;
  };
  const std::vector<Suspect> suspects = {
      {{1},
       "scale missing",
       fmt::format("That is what comes without a scale. A product of {} numbers grows with their number: "
                   "divide the scores by sqrt({}).",
                   in.width(), in.width())},
      {{1 / width}, "wrong scale", "The scores were divided by the width. Divide by its root."},
      {{std::sqrt(width)}, "wrong scale", "The scores were multiplied by the root. Divide by it."},
      {{1 / std::sqrt(length)},
       "wrong scale",
       "The scores were divided by the root of the length. Divide by the root of a head's width, "
       "query.size(-1)."},
      {{1 / std::sqrt(width * static_cast<double>(in.query.size(1)))},
       "wrong scale",
       "The scores were divided by the root of all heads' width together. Divide by that of one head."},
      {{0.5}, "wrong scale", "The scores were divided by 2, the root of another width, 4."},
      {{scale, [](int64_t) { return int64_t{1} << 40; }},
       "sees the future",
       "That is what comes without a mask. At other lengths there was one."},
      {{scale, [](int64_t t) { return t + 2; }}, "mask off by one", "Each position sees one ahead: triu(1)."},
  };
  for (const auto& [rule, name, meaning] : suspects)
    checker.expect(!same(found.out, reference(in, rule).out), name, what, meaning);
  checker.expect(torch::isfinite(found.out).all().item<bool>(), "no numbers", what,
                 "The result holds NaN or infinities. Large scores overflow in exp(): torch::softmax "
                 "subtracts the largest first.");
  checker.fail("wrong attention", what,
               "softmax(query key^T / sqrt(width), over the keys up to this position), times value. Which of "
               "these differs at this shape? Is a mask, a length or a width kept from another call?");
}

void check_all_values(const Seam& seam, Checker& checker, const std::vector<Input>& inputs) {
  const auto found = run_attention(seam, checker, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) check_values(checker, inputs[i], found[i]);
}

}  // namespace

void check_attention(const Seam& seam, Checker& checker) {
  check_view(seam, checker, make_input(checker, {2, 3, 6, 4}));
  checker.proved(
      "a position sees itself and those before it: editing one leaves all earlier results unchanged");
  std::vector<Input> inputs;
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{2, 3, 6, 4}, {1, 2, 9, 16}, {3, 1, 5, 1}, {1, 1, 1, 4}})
    inputs.push_back(make_input(checker, shape));
  check_all_values(seam, checker, inputs);
  inputs.clear();
  for (uint64_t salt : {10, 20, 30}) {
    inputs.push_back(
        make_input(checker, {checker.draw_between(salt, 1, 5), checker.draw_between(salt + 1, 1, 5),
                             checker.draw_between(salt + 2, 10, 75), checker.draw_between(salt + 3, 5, 37)}));
  }
  const int64_t length = checker.draw_between(40, 257, 290);
  inputs.push_back(make_input(checker, {1, 1, length, checker.draw_between(41, 5, 15)}));
  check_all_values(seam, checker, inputs);
  checker.proved(
      "result and gradients are those of a reference that never touches the future, for shapes from the "
      "seed, too");
  // Scores up to some 100 000, as in a model whose weights have grown.
  const auto large = make_input(checker, {1, 2, 11, 6}, 200);
  const auto both = run_attention(seam, checker, {large, {large.query, large.key, edited(large.value, 10)}});
  check_form(checker, large, both[0]);
  const auto changed = differing(both[0].out, both[1].out);
  checker.expect(
      changed.empty() || changed.front() == 10 || !both[0].out.isfinite().all().item<bool>(), "mask too weak",
      fmt::format("{}, scores of some 100 000: the last value was edited, and the result changed at {}",
                  large.text(), fmt::join(changed, ", ")),
      "A large negative number can be larger than another score. Masked scores are minus infinity: "
      "-std::numeric_limits<double>::infinity().");
  check_values(checker, large, both[0]);
  checker.proved("scores of any size are masked");
}

}  // namespace lab::attention
