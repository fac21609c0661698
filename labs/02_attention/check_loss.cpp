#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "02_attention/parts.h"
#include "lab/tensor_data.h"
#include "lab/torch_guard.h"

namespace lab::attention {

namespace {

using torch::Tensor;

/// Logits [B, T, V] and tokens [B, T].
struct Guesses {
  Tensor logits, tokens;
};

Guesses make_guesses(const Checker& checker, int64_t batch, int64_t length, int64_t vocabulary, double size) {
  auto numbers = at::detail::createCPUGenerator(checker.draw(static_cast<uint64_t>(batch * 100 + length)));
  return {size * torch::randn({batch, length, vocabulary}, numbers, torch::kDouble),
          torch::randint(vocabulary, {batch, length}, numbers, torch::kLong)};
}

/// What a call gave.
struct Answer {
  Tensor loss;
  bool has_graph = false;
  Tensor gradient;  ///< Of the logits.
  Guesses after;
};

std::vector<Answer> run_loss(const Seam& seam, Checker& checker, const std::vector<Guesses>& all) {
  return checker.in_child([&] {
    std::vector<Answer> answers;
    for (const auto& guesses : all) {
      auto& answer = answers.emplace_back();
      answer.after = {guesses.logits.clone().set_requires_grad(true), guesses.tokens.clone()};
      guard_torch(checker, "next_token_loss", [&] {
        answer.loss = seam.next_token_loss(answer.after.logits, answer.after.tokens);
        answer.has_graph = answer.loss.defined() && answer.loss.requires_grad();
        if (answer.has_graph && answer.loss.numel() == 1) answer.loss.backward();
      });
      answer.gradient = answer.after.logits.grad();
    }
    return answers;
  });
}

/// -ln p of `tokens` [B, T] by `logits` [B, T, V], of each.
Tensor surprise(const Tensor& logits, const Tensor& tokens) {
  return -torch::log_softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1);
}

bool same_number(double one, double other) {
  return std::abs(one - other) <= 1e-6 * std::abs(other);
}

/// The slope of the right loss: what the softmax gives, less one at the token that came.
Tensor slope_of(const Guesses& guesses) {
  const int64_t count = guesses.tokens.size(1) - 1;
  auto slope = torch::zeros_like(guesses.logits);
  const auto came = guesses.tokens.narrow(1, 1, count).unsqueeze(-1);
  const auto probability = torch::softmax(guesses.logits.narrow(1, 0, count), -1);
  slope.narrow(1, 0, count).copy_(probability - torch::zeros_like(probability).scatter(-1, came, 1));
  return slope / static_cast<double>(guesses.tokens.size(0) * count);
}

void check_number(Checker& checker, const Guesses& guesses, double found) {
  const auto& [logits, tokens] = guesses;
  const int64_t batch = tokens.size(0), length = tokens.size(1);
  const auto here = [&](int64_t from, int64_t to) {  // guesses at `from` on, for tokens at `to` on
    const int64_t count = length - std::max(from, to);
    return surprise(logits.narrow(1, from, count), tokens.narrow(1, to, count));
  };
  const auto mean = [](const Tensor& each) { return each.mean().item<double>(); };
  const double right = mean(here(0, 1));
  if (same_number(found, right)) return;
  const auto what = fmt::format("for logits [{}, {}, {}] the loss is {:.6g}, expected {:.6g}", batch, length,
                                logits.size(2), found, right);
  checker.expect(std::isfinite(found), "loss not finite", what,
                 "The logarithm of a probability that was rounded to 0 is infinite: use "
                 "cross_entropy_loss or log_softmax, which never make the probability itself.");
  const std::string copies =
      "That asks at position t for the token at t, which the model has just read: it learns to copy. The "
      "guess at t is for the token at t + 1: logits without the last position, tokens without the first.";
  struct Suspect {
    double value;
    std::string name, meaning;
  };
  const std::vector<Suspect> suspects = {
      {0, "no loss",
       "cross_entropy_loss takes [N, vocabulary] logits and [N] tokens: cut off what has no partner, and "
       "flatten."},
      {mean(here(0, 0)), "labels not shifted", copies},
      {mean(here(0, 0).narrow(1, 0, length - 1)), "labels not shifted", copies},
      {mean(here(0, 0).narrow(1, 1, length - 1)), "labels not shifted", copies},
      {mean(here(1, 0)), "shifted the other way",
       "That asks for the token before. The guess at t is for the token at t + 1."},
      {length > 2 ? mean(here(0, 2)) : 0, "shifted by two",
       "That asks for the token after the next one. The guess at t is for the token at t + 1."},
      {length > 2 ? mean(here(0, 1).narrow(1, 1, length - 2)) : 0, "first guess left out",
       "The first guess, for the token at 1, is missing."},
      {length > 2 ? mean(here(0, 1).narrow(1, 0, length - 2)) : 0, "last guess left out",
       "The last guess, for the last token, is missing."},
      {right * static_cast<double>(batch * (length - 1)), "sum instead of mean",
       "Take the mean: a sum grows with batch and length."},
      {right * static_cast<double>(length - 1), "sum instead of mean",
       "Take the mean over positions, too: a sum grows with the length."},
      {right * static_cast<double>(batch), "sum instead of mean",
       "Take the mean over samples, too: a sum grows with the batch."},
      {right * static_cast<double>(length - 1) / static_cast<double>(length), "wrong count",
       "The sum was divided by all positions. The last one has no guess: there are length - 1."},
      {-right, "wrong sign", "The loss is the mean of minus ln p."},
      {std::exp(right), "perplexity instead of loss", "That is e to the power of the loss."},
      {right / std::log(2.0), "bits instead of nats", "The loss is in nats: natural logarithms, as H is."},
      {mean(surprise(logits, tokens.roll(-1, 1))), "wraps around",
       "The last position was asked for the first token. It has nothing to guess: leave it out."},
      {mean(here(0, 1)[0]), "first sample alone", "That is the loss of the first sample. Take all of them."},
  };
  for (const auto& [value, name, meaning] : suspects)
    checker.expect(found != value && !same_number(found, value), name, what, meaning);
  checker.fail("wrong loss", what, "The mean of -ln p, over the tokens from the second one on.");
}

void check_answer(Checker& checker, const Guesses& guesses, const Answer& answer) {
  checker.expect(
      answer.loss.defined() && answer.loss.numel() == 1, "wrong shape",
      fmt::format("the loss has {} numbers, expected 1", answer.loss.defined() ? answer.loss.numel() : 0),
      "One number: the mean over all positions of all samples.");
  check_number(checker, guesses, answer.loss.item<double>());
  checker.expect(answer.has_graph, "no graph", "the loss has lost its way back to the logits",
                 "detach(), item() and NoGradGuard cut it off: backward() would find nothing.");
  checker.expect(
      answer.gradient.defined() && (answer.gradient - slope_of(guesses)).abs().max().item<double>() <= 1e-6,
      "wrong gradient", "the loss is right, but backward() gives the logits another gradient than its own",
      "Something on the way is computed outside of autograd: detach(), data() or a NoGradGuard.");
  checker.expect(
      torch::equal(answer.after.logits, guesses.logits) && torch::equal(answer.after.tokens, guesses.tokens),
      "input changed", "after next_token_loss logits or tokens differ",
      "They belong to the caller. An operation whose name ends in _ changes the tensor itself.");
}

void check_all_losses(const Seam& seam, Checker& checker, const std::vector<Guesses>& all) {
  const auto answers = run_loss(seam, checker, all);
  for (size_t i = 0; i < all.size(); ++i) check_answer(checker, all[i], answers[i]);
}

void check_perplexity(const Seam& seam, Checker& checker) {
  std::vector<double> losses = {0.0, 0.5, 2.0, 3.3};
  for (uint64_t i = 0; i < 3; ++i)
    losses.push_back(static_cast<double>(checker.draw_between(60 + i, 1, 9999)) * 1e-3);
  const auto answers = checker.in_child([&] {
    std::vector<double> all;
    for (const double nats : losses) all.push_back(seam.perplexity(nats));
    return all;
  });
  for (size_t i = 0; i < losses.size(); ++i) {
    const double right = std::exp(losses[i]);
    const auto what = fmt::format("perplexity({}) is {:.6g}, expected {:.6g}", losses[i], answers[i], right);
    checker.expect(losses[i] == 0 || !same_number(answers[i], std::exp2(losses[i])), "bits instead of nats",
                   what, "The loss is in nats, that is in natural logarithms: the base is e, not 2.");
    checker.expect(
        same_number(answers[i], right), "wrong perplexity", what,
        "A loss of ln n is that of n equally likely tokens. So which function of the loss gives n?");
  }
}

}  // namespace

void check_loss(const Seam& seam, Checker& checker) {
  check_all_losses(seam, checker, {make_guesses(checker, 3, 7, 11, 2)});
  std::vector<Guesses> drawn;
  for (const uint64_t salt : {50, 53}) {
    drawn.push_back(make_guesses(checker, checker.draw_between(salt, 1, 9),
                                 checker.draw_between(salt + 1, 3, 40), checker.draw_between(salt + 2, 5, 60),
                                 3));
  }
  drawn.push_back(make_guesses(checker, 2, 2, 5, 1));
  drawn.push_back(make_guesses(checker, 2, 9, 13, 600));  // p is rounded to 0
  check_all_losses(seam, checker, drawn);
  checker.proved("the guess at each position is compared with the token that came next; so are gradients");
  check_perplexity(seam, checker);
  checker.proved("perplexity is the number of equally likely tokens: exp of the loss");
}

}  // namespace lab::attention
