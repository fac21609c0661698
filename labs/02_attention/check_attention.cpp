#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "02_attention/parts.h"
#include "lab/torch_guard.h"

namespace lab::attention {

namespace {

using torch::Tensor;

struct Input {
  Tensor query, key, value;  // [B, heads, T, D], doubles
};

Input make_input(const Checker& checker, int64_t batch, int64_t heads, int64_t length, int64_t width) {
  auto numbers = at::detail::createCPUGenerator(checker.draw(static_cast<uint64_t>(length * 100 + width)));
  const auto draw = [&] { return torch::randn({batch, heads, length, width}, numbers, torch::kDouble); };
  return {draw(), draw(), draw()};
}

/// What is right, one position after the other: of the keys and values after it nothing is ever touched.
/// `sees(t)`: how many positions position t looks at.
Tensor reference(const Input& in, double scale, const std::function<int64_t(int64_t)>& sees) {
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < in.query.size(2); ++t) {
    const int64_t count = std::min(sees(t), in.query.size(2));
    const auto scores =
        scale * torch::matmul(in.query.narrow(2, t, 1), in.key.narrow(2, 0, count).transpose(-2, -1));
    rows.push_back(torch::matmul(torch::softmax(scores, -1), in.value.narrow(2, 0, count)));
  }
  return torch::cat(rows, 2);
}

bool close(const Tensor& one, const Tensor& other) {
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

/// NaN and infinities.
void check_numbers(Checker& checker, const Tensor& out) {
  if (torch::isfinite(out).all().item<bool>()) return;
  const bool is_first_alone = torch::isfinite(out.narrow(2, 1, out.size(2) - 1)).all().item<bool>();
  checker.expect(
      !is_first_alone, "mask off by one", "position 0 gives NaN, the others give numbers",
      "Position 0 may look at itself and at nobody else. If its own score is masked as well, nothing is "
      "left to weigh. Mask the positions behind: triu(1), which leaves the diagonal.");
  checker.fail("no numbers", "the result holds NaN or infinities",
               "A row of scores that is masked as a whole gives NaN, and so does 0 times infinity: mask with "
               "masked_fill, not by multiplying.");
}

/// Which positions look at which.
void check_view(const Seam& seam, Checker& checker, const Input& in) {
  const int64_t length = in.query.size(2), at = 3;
  const auto run = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return guard_torch(checker, "causal_attention", [&] { return seam.causal_attention(q, k, v); });
  };
  const auto out = run(in.query, in.key, in.value);
  const auto first_edited = differing(out, run(in.query, in.key, edited(in.value, 0)));
  checker.expect(
      first_edited.size() > 1, "no attention",
      "another value at position 0 changes the result at no other position",
      "Each position must mix in the values before it. Scores are matmul(query, key.transpose(-2, -1)), "
      "their softmax weighs the values.");
  const auto changed = differing(out, run(edited(in.query, at), edited(in.key, at), edited(in.value, at)));
  const auto what = fmt::format("of {} positions, number {} was edited; the result changed at {}", length, at,
                                fmt::join(changed, ", "));
  checker.expect(
      changed.empty() || changed.front() >= at - 1, "sees the future", what,
      "Positions before the edited one have looked at it. In training they would see the token that they "
      "should guess, learn to copy it, and the loss would go to zero. Scores of later positions must be "
      "minus infinity before the softmax.");
  checker.expect(
      changed.empty() || changed.front() >= at, "mask off by one", what,
      "The position just before sees one ahead: the very token that it should guess. Mask from the first "
      "diagonal above the main one on: triu(1).");
  const auto own = differing(out, run(in.query, in.key, edited(in.value, at)));
  checker.expect(!own.empty() && own.front() == at, "mask off by one",
                 fmt::format("another value at position {} changes nothing at position {} itself", at, at),
                 "A position sees itself: it is the last token that is known. triu(1) leaves the diagonal.");
}

void check_values(const Seam& seam, Checker& checker, const Input& in) {
  const double width = static_cast<double>(in.query.size(3)), scale = 1 / std::sqrt(width);
  const auto causal = [](int64_t t) { return t + 1; };
  const auto out = guard_torch(checker, "causal_attention",
                               [&] { return seam.causal_attention(in.query, in.key, in.value); });
  const auto right = reference(in, scale, causal);
  if (close(out, right)) return;
  const auto flat = (out - right).abs().argmax().item<int64_t>();
  const auto what =
      fmt::format("batch {}, {} heads, {} positions, width {}: position {} gives {:.6g}, expected {:.6g}",
                  in.query.size(0), in.query.size(1), in.query.size(2), in.query.size(3),
                  flat / in.query.size(3) % in.query.size(2), out.flatten()[flat].item<double>(),
                  right.flatten()[flat].item<double>());
  checker.expect(
      !close(out, reference(in, 1, causal)), "scale missing", what,
      fmt::format("That is what comes without a scale. A product of {} numbers grows with their number: "
                  "divide the scores by sqrt({}).",
                  width, width));
  checker.expect(!close(out, reference(in, 1 / width, causal)), "wrong scale", what,
                 "The scores were divided by the width. Divide by its root.");
  checker.expect(!close(out, reference(in, 1 / std::sqrt(static_cast<double>(in.query.size(2))), causal)),
                 "wrong scale", what,
                 "The scores were divided by the root of the length. Divide by the root of a head's width, "
                 "query.size(-1).");
  checker.fail(
      "wrong attention", what,
      "softmax(query key^T / sqrt(width), over the keys up to this position), times value. Which of these "
      "is another?");
}

}  // namespace

void check_attention(const Seam& seam, Checker& checker) {
  const auto in = make_input(checker, 2, 3, 6, 4);
  const auto run = [&](const Tensor& value) {
    return guard_torch(checker, "causal_attention",
                       [&] { return seam.causal_attention(in.query, in.key, value); });
  };
  const auto out = run(in.value);
  checker.expect(out.defined() && out.sizes() == in.value.sizes(), "wrong shape",
                 fmt::format("for [{}] the result is [{}]", fmt::join(in.value.sizes(), ", "),
                             out.defined() ? fmt::format("{}", fmt::join(out.sizes(), ", ")) : "undefined"),
                 "One vector for each position of each head, as wide as the values.");
  check_numbers(checker, out);
  const auto sums = run(torch::ones_like(in.value));
  if (!close(sums, torch::ones_like(sums))) {
    const auto flat = (sums - 1).abs().argmax().item<int64_t>();
    const auto what =
        fmt::format("the weights of position {} sum to {:.6g}, expected 1",
                    flat / in.value.size(3) % in.value.size(2), sums.flatten()[flat].item<double>());
    const auto full =
        torch::softmax(torch::matmul(in.query, in.key.transpose(-2, -1)) / 2, -1);  // 2: of width 4
    checker.expect(
        !close(out, torch::matmul(full.tril(), in.value)), "mask after softmax", what,
        "Setting weights to zero after the softmax leaves less than 1. Mask the scores, before it.");
    checker.fail(
        "softmax over the wrong dimension", what,
        "The last dimension of the scores is the keys: each query's weights over them sum to 1. That is "
        "softmax(scores, -1).");
  }
  check_view(seam, checker, in);
  checker.proved(
      "a position sees itself and those before it: editing one leaves all earlier results unchanged");
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{2, 3, 6, 4}, {1, 1, 1, 4}, {1, 2, 9, 16}, {3, 1, 5, 1}})
    check_values(seam, checker, make_input(checker, shape[0], shape[1], shape[2], shape[3]));
  checker.proved("the result is that of a reference that never touches the future");
}

}  // namespace lab::attention
