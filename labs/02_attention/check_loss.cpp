#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cmath>

#include "02_attention/parts.h"
#include "lab/torch_guard.h"

namespace lab::attention {

namespace {

using torch::Tensor;

/// -ln p of `tokens` [B, T] by `logits` [B, T, V], of each.
Tensor surprise(const Tensor& logits, const Tensor& tokens) {
  return -torch::log_softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1);
}

bool close(double one, double other) {
  return std::abs(one - other) <= 1e-6 * std::abs(other);
}

}  // namespace

void check_loss(const Seam& seam, Checker& checker) {
  const int64_t batch = 3, length = 7, vocabulary = 11;
  auto numbers = at::detail::createCPUGenerator(checker.draw(5));
  const auto logits =
      (2 * torch::randn({batch, length, vocabulary}, numbers, torch::kDouble)).set_requires_grad(true);
  const auto tokens = torch::randint(vocabulary, {batch, length}, numbers, torch::kLong);
  const auto loss =
      guard_torch(checker, "next_token_loss", [&] { return seam.next_token_loss(logits, tokens); });
  checker.expect(loss.defined() && loss.numel() == 1, "wrong shape",
                 fmt::format("the loss has {} numbers, expected 1", loss.defined() ? loss.numel() : 0),
                 "One number: the mean over all positions of all samples.");
  const auto here = [&](int64_t from, int64_t to) {  // guesses at `from` on, for tokens at `to` on
    const int64_t count = length - std::max(from, to);
    return surprise(logits.narrow(1, from, count), tokens.narrow(1, to, count)).mean().item<double>();
  };
  const double found = loss.item<double>(), right = here(0, 1);
  const auto what = fmt::format("the loss is {:.6g}, expected {:.6g}", found, right);
  if (!close(found, right)) {
    checker.expect(
        found != 0, "no loss", what,
        "cross_entropy_loss takes [N, vocabulary] logits and [N] tokens: cut off what has no partner, and "
        "flatten.");
    checker.expect(
        !close(found, here(0, 0)) &&
            !close(found, surprise(logits.narrow(1, 0, length - 1), tokens.narrow(1, 0, length - 1))
                              .mean()
                              .item<double>()),
        "labels not shifted", what,
        "That asks at position t for the token at t, which the model has just read: it learns to copy. The "
        "guess at t is for the token at t + 1: logits without the last position, tokens without the first.");
    checker.expect(!close(found, here(1, 0)), "shifted the other way", what,
                   "That asks for the token before. The guess at t is for the token at t + 1.");
    checker.expect(!close(found, right * static_cast<double>(batch * (length - 1))), "sum instead of mean",
                   what, "Take the mean: a sum grows with batch and length.");
    checker.expect(!close(found, right / std::log(2.0)), "bits instead of nats", what,
                   "The loss is in nats: natural logarithms, as H is.");
    const auto wrapped = surprise(logits, tokens.roll(-1, 1)).mean().item<double>();
    checker.expect(!close(found, wrapped), "wraps around", what,
                   "The last position was asked for the first token. It has nothing to guess: leave it out.");
    checker.fail("wrong loss", what, "The mean of -ln p, over the tokens from the second one on.");
  }
  checker.expect(loss.requires_grad(), "no graph", "the loss has lost its way back to the logits",
                 "detach(), item() and NoGradGuard cut it off: backward() would find nothing.");
  checker.proved("the guess at each position is compared with the token that came next");

  for (const double nats : {0.0, 0.5, 2.0, 3.3}) {
    const double answer = seam.perplexity(nats);
    checker.expect(
        close(answer, std::exp(nats)), "wrong perplexity",
        fmt::format("perplexity({}) is {:.6g}, expected {:.6g}", nats, answer, std::exp(nats)),
        "A loss of ln n is that of n equally likely tokens. So which function of the loss gives n?");
  }
  checker.proved("perplexity is the number of equally likely tokens: exp of the loss");
}

}  // namespace lab::attention
