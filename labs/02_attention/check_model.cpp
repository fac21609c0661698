#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "02_attention/parts.h"
#include "lab/torch_guard.h"
#include "lockstep/train/data/grammar.h"
#include "lockstep/train/models/tiny_transformer.h"
#include "lockstep/train/optim/fused_adam.h"

namespace lab::attention {

namespace {

using torch::Tensor;

constexpr int64_t kLength = 16;  // characters to guess
constexpr int64_t kBatch = 16;
constexpr int64_t kSteps = 200;

/// The library's TinyTransformer, with the learner's attention in its place.
class Model {
 public:
  Model(const Seam& seam, int64_t layers, int64_t vocabulary, uint64_t seed)
      : seam_(seam),
        config_{.vocab_size = vocabulary,
                .hidden_size = 48,
                .num_hidden_layers = layers,
                .num_attention_heads = 4,
                .intermediate_size = 96,
                .max_position_embeddings = kLength + 1},
        model_(config_, seed) {
    for (const auto& parameter : model_->named_parameters()) weights_[parameter.key()] = parameter.value();
  }

  lockstep::TinyTransformer& original() { return model_; }

  /// [B, T] -> [B, T, vocabulary]: as TinyTransformer's.
  Tensor logits(const Tensor& tokens) const {
    const int64_t batch = tokens.size(0), length = tokens.size(1), heads = config_.num_attention_heads;
    auto x = torch::embedding(weight("embeddings.token.weight"), tokens) +
             weight("embeddings.position.weight").narrow(0, 0, length);
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const auto block = fmt::format("block{}.", i);
      const auto qkv = linear(block + "attention_qkv", norm(block + "attention_norm", x))
                           .view({batch, length, 3, heads, config_.hidden_size / heads})
                           .permute({2, 0, 3, 1, 4});
      const auto mixed = seam_.causal_attention(qkv[0], qkv[1], qkv[2]);
      x = x + linear(block + "attention_out", mixed.transpose(1, 2).reshape(x.sizes()));
      x = x + linear(block + "mlp_out", torch::gelu(linear(block + "mlp_in", norm(block + "mlp_norm", x))));
    }
    return torch::matmul(norm("head.norm", x), weight("embeddings.token.weight").t());
  }

 private:
  const Tensor& weight(const std::string& name) const { return weights_.at("layers." + name); }
  Tensor linear(const std::string& name, const Tensor& x) const {
    return torch::linear(x, weight(name + ".weight"), weight(name + ".bias"));
  }
  Tensor norm(const std::string& name, const Tensor& x) const {
    return torch::layer_norm(x, {config_.hidden_size}, weight(name + ".weight"), weight(name + ".bias"),
                             config_.layer_norm_eps);
  }

  const Seam& seam_;
  lockstep::TransformerConfig config_;
  lockstep::TinyTransformer model_;
  std::map<std::string, Tensor> weights_;
};

/// Sentences of the built-in grammar, as numbers.
class Text {
 public:
  int64_t vocabulary() const { return static_cast<int64_t>(grammar_.alphabet().size()); }
  /// A newline, then kLength characters of each sample: [count, kLength + 1].
  Tensor batch(uint64_t seed, int64_t first, int64_t count) const {
    std::vector<int64_t> tokens;
    for (int64_t i = first; i < first + count; ++i) {
      for (const char character : "\n" + grammar_.sample(seed, static_cast<uint64_t>(i), kLength))
        tokens.push_back(static_cast<int64_t>(grammar_.alphabet().find(character)));
    }
    return torch::tensor(tokens).view({count, kLength + 1});
  }
  double entropy() const { return grammar_.entropy(kLength); }

  /// The least that a model can get to that knows a character and its place, and nothing before it: one
  /// without attention. From counts.
  double entropy_without_attention() const {
    constexpr uint64_t kSamples = 20'000;
    const size_t letters = grammar_.alphabet().size();
    std::vector<double> counts(kLength * letters * letters);  // [place][character][follower]
    for (uint64_t i = 0; i < kSamples; ++i) {
      size_t last = grammar_.alphabet().find('\n'), place = 0;
      for (const char character : grammar_.sample(1, i, kLength)) {
        const size_t next = grammar_.alphabet().find(character);
        counts[(place++ * letters + last) * letters + next] += 1;
        last = next;
      }
    }
    double nats = 0;
    for (auto row = counts.begin(); row != counts.end(); row += static_cast<std::ptrdiff_t>(letters)) {
      const auto end = row + static_cast<std::ptrdiff_t>(letters);
      const double all = std::accumulate(row, end, 0.0);
      for (auto count = row; count != end; ++count) {
        if (*count > 0) nats -= *count * std::log(*count / all);
      }
    }
    return nats / static_cast<double>(kSamples * kLength);
  }
  /// What the very characters of batch(seed, 0, count) cost who knows the grammar.
  double floor(uint64_t seed, int64_t count) const {
    double nats = 0;
    for (int64_t i = 0; i < count; ++i) {
      for (const double each : grammar_.surprisal(grammar_.sample(seed, static_cast<uint64_t>(i), kLength)))
        nats += each;
    }
    return nats / static_cast<double>(count * kLength);
  }

 private:
  lockstep::Grammar grammar_;
};

/// Editing a token leaves the logits before it as they were, and the logits are the library's.
void check_logits(const Seam& seam, Checker& checker, const Text& text) {
  Model model(seam, 2, text.vocabulary(), checker.seed());
  const torch::NoGradGuard no_grad;
  const auto tokens = text.batch(checker.seed(), 0, 2);
  const auto run = [&](const Tensor& of) {
    return guard_torch(checker, "causal_attention in TinyTransformer", [&] { return model.logits(of); });
  };
  const auto logits = run(tokens);
  for (const int64_t at : {1, 8, 16}) {
    auto edited = tokens.clone();
    edited.select(1, at).copy_((edited.select(1, at) + 1).remainder(text.vocabulary()));
    checker.expect(torch::equal(run(edited).narrow(1, 0, at), logits.narrow(1, 0, at)), "sees the future",
                   fmt::format("token {} of {} was edited, and logits before it changed", at, tokens.size(1)),
                   "Something in front of that token has looked at it.");
  }
  const double apart = (logits - model.original()->forward(tokens)).abs().max().item<double>();
  checker.expect(
      apart < 1e-4, "wrong attention",
      fmt::format("in TinyTransformer the logits differ by up to {:.1e} from the library's", apart),
      "In doubles it was right. Is something of another type made in between?");
  checker.proved(
      "in TinyTransformer, editing token t leaves the logits before t unchanged, and they are the library's");
}

/// How a training went.
struct Run {
  std::vector<double> losses, seconds;  ///< Of each step; the time since the first began.
  double validation = 0;

  /// The mean of 20 losses up to this step.
  double smooth(size_t step) const {
    double sum = 0;
    for (size_t i = step - 20; i < step; ++i) sum += losses[i] / 20;
    return sum;
  }
};

Run train(const Seam& seam, Checker& checker, const Text& text, int64_t layers, uint64_t validation_seed) {
  using Clock = std::chrono::steady_clock;
  constexpr double kLearningRate = 0.005;
  constexpr int64_t kWarmup = 20;
  Model model(seam, layers, text.vocabulary(), checker.seed());
  auto options = torch::optim::AdamWOptions(kLearningRate).weight_decay(0.01);
  lockstep::FusedAdamW optimizer(model.original()->parameters(), options);
  Run run;
  const auto start = Clock::now();
  for (int64_t step = 0; step < kSteps; ++step) {
    guard_torch(checker, fmt::format("training with {} layers, step {}", layers, step), [&] {
      const auto tokens = text.batch(checker.seed(), step * kBatch, kBatch);
      for (auto& group : optimizer.param_groups()) {
        static_cast<torch::optim::AdamWOptions&>(group.options())
            .lr(kLearningRate * std::min(1.0, static_cast<double>(step + 1) / kWarmup));
      }
      optimizer.zero_grad();
      const auto loss = seam.next_token_loss(model.logits(tokens), tokens);
      loss.backward();
      optimizer.step();
      run.losses.push_back(loss.item<double>());
      run.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    });
  }
  const torch::NoGradGuard no_grad;
  const auto tokens = text.batch(validation_seed, 0, 128);
  run.validation = seam.next_token_loss(model.logits(tokens), tokens).item<double>();
  return run;
}

void check_training(const Seam& seam, Checker& checker, const Text& text) {
  const uint64_t validation_seed = checker.draw(7);
  const double floor = text.floor(validation_seed, 128), alone = text.entropy_without_attention();
  std::map<int64_t, Run> runs;
  for (const int64_t layers : {2, 4}) {
    const Run& run = runs[layers] = train(seam, checker, text, layers, validation_seed);
    const auto what = fmt::format(
        "{} layers, {} steps: validation loss {:.3f}; the entropy of that text is {:.3f}, "
        "without attention no model gets below {:.3f}",
        layers, kSteps, run.validation, floor, alone);
    checker.expect(
        run.validation >= floor, "sees the future", what,
        "Below the entropy nobody can get who does not know the answer. The token to guess leaks into the "
        "input: by the mask, or by labels that are not shifted.");
    checker.expect(run.validation < alone, "does not learn", what,
                   "Each part was right by itself. Does a gradient come through: is anything detached?");
  }
  const Run &two = runs[2], &four = runs[4];
  const auto steps = static_cast<size_t>(kSteps);
  size_t meanwhile =
      static_cast<size_t>(std::ranges::upper_bound(four.seconds, two.seconds.back()) - four.seconds.begin());
  meanwhile = std::clamp<size_t>(meanwhile, 20, steps);
  checker.note(fmt::format(
      "H {:.3f} nats a character; without attention at best {:.3f}; of {} equally likely ones {:.3f}",
      text.entropy(), alone, text.vocabulary(), std::log(static_cast<double>(text.vocabulary()))));
  checker.note(
      fmt::format("layers  loss at steps 50, 100, 150, {}     time     validation loss, perplexity", kSteps));
  for (const auto& [layers, run] : runs) {
    checker.note(fmt::format("{:>6}  {:.3f}   {:.3f}   {:.3f}   {:.3f}       {:>6.2f} s     {:.3f}   {:.2f}",
                             layers, run.smooth(50), run.smooth(100), run.smooth(150), run.smooth(steps),
                             run.seconds.back(), run.validation, seam.perplexity(run.validation)));
  }
  checker.note(fmt::format(
      "at equal time, the {:.2f} s of 2 layers: 2 layers {:.3f} (step {}), 4 layers {:.3f} (step {})",
      two.seconds.back(), two.smooth(steps), steps, four.smooth(meanwhile), meanwhile));
  checker.proved(fmt::format(
      "trained on text of known entropy, 2 and 4 layers stay above H and get below {:.2f}, the best "
      "that is possible without attention",
      alone));
}

}  // namespace

void check_model(const Seam& seam, Checker& checker) {
  const Text text;
  check_logits(seam, checker, text);
  check_training(seam, checker, text);
}

}  // namespace lab::attention
