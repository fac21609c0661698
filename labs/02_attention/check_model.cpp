#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "02_attention/parts.h"
#include "lab/tensor_data.h"
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
/// The entropy of the next character for one who knows the current one and its place, and nothing before it:
/// the least that a model without attention can get to. From counts over 20 000 samples of the grammar.
constexpr double kWithoutAttention = 1.395;

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

/// The learner's functions and the library's, with the same weights, on the same tokens.
struct Outcome {
  Tensor logits, loss;
  std::vector<Tensor> edited;     ///< Logits after one token was edited.
  std::vector<Tensor> gradients;  ///< Of the loss, by parameter.
};

constexpr int64_t kEdited[] = {1, 8, 16};

/// One forward and backward, and forwards with single tokens edited.
template <typename Logits, typename Loss>
Outcome outcome_of(Model& model, const Text& text, const Tensor& tokens, const Logits& logits,
                   const Loss& loss) {
  Outcome outcome{logits(tokens), {}, {}, {}};
  outcome.loss = loss(outcome.logits, tokens);
  outcome.loss.backward();
  for (const auto& parameter : model.original()->parameters()) outcome.gradients.push_back(parameter.grad());
  const torch::NoGradGuard no_grad;
  for (const int64_t at : kEdited) {
    auto edited = tokens.clone();
    edited.select(1, at).copy_((edited.select(1, at) + 1).remainder(text.vocabulary()));
    outcome.edited.push_back(logits(edited));
  }
  return outcome;
}

Tensor library_loss(const Tensor& logits, const Tensor& tokens) {
  return lockstep::next_token_loss(logits.narrow(1, 0, kLength).contiguous(),
                                   tokens.narrow(1, 1, kLength).contiguous());
}

/// Editing a token leaves the logits before it as they were; logits and gradients are the library's.
void check_one_pass(const Seam& seam, Checker& checker, const Text& text) {
  const auto tokens = text.batch(checker.seed(), 0, 2);
  const auto found = checker.in_child([&] {
    Model model(seam, 2, text.vocabulary(), checker.seed());
    return guard_torch(checker, "TinyTransformer", [&] {
      return outcome_of(
          model, text, tokens, [&](const Tensor& of) { return model.logits(of); }, seam.next_token_loss);
    });
  });
  // In a child as well, but without the learner's functions: LibTorch refuses backward() in a child of a
  // process that has called it.
  const auto right = checker.in_child([&] {
    Model model(seam, 2, text.vocabulary(), checker.seed());
    return outcome_of(
        model, text, tokens, [&](const Tensor& of) { return model.original()->forward(of); }, library_loss);
  });
  for (size_t i = 0; i < std::size(kEdited); ++i) {
    const int64_t at = kEdited[i];
    checker.expect(torch::equal(found.edited[i].narrow(1, 0, at), found.logits.narrow(1, 0, at)),
                   "sees the future",
                   fmt::format("token {} of {} was edited, and logits before it changed", at, tokens.size(1)),
                   "Something in front of that token has looked at it.");
  }
  const double apart = (found.logits - right.logits).abs().max().item<double>();
  checker.expect(
      apart < 1e-4, "wrong attention",
      fmt::format("in TinyTransformer the logits differ by up to {:.1e} from the library's", apart),
      "By itself it was right, in doubles. Is something made in another type, or kept from another "
      "call?");
  for (size_t i = 0; i < right.gradients.size(); ++i) {
    const auto &one = found.gradients[i], &other = right.gradients[i];
    checker.expect(
        one.defined() &&
            (one - other).abs().max().item<double>() < 1e-4 + 1e-3 * other.abs().max().item<double>(),
        "wrong gradient",
        fmt::format("in TinyTransformer the logits are right, and the gradient of parameter {} of {} "
                    "is not",
                    i + 1, right.gradients.size()),
        "Each function was right by itself, in doubles. Is something made in another type, or kept "
        "from another call?");
  }
  checker.proved(
      "in TinyTransformer, editing token t leaves the logits before t unchanged; logits and gradients are "
      "the "
      "library's");
}

/// How a training went.
struct Run {
  std::vector<double> losses, seconds;  ///< Of each step; the time since the first began.
  std::vector<size_t> heap;             ///< Bytes that the process held after each step.
  double validation = 0;
  std::vector<Tensor> weights;  ///< In the end.

  /// The mean of 10 losses up to this step.
  double smooth(size_t step) const {
    double sum = 0;
    for (size_t i = step - 10; i < step; ++i) sum += losses[i] / 10;
    return sum;
  }
};

/// Rises for ten steps, then falls to zero in step kSteps.
double learning_rate(int64_t step) {
  return 0.007 * std::min({1.0, static_cast<double>(step + 1) / 10,
                           1.25 * static_cast<double>(kSteps - step) / static_cast<double>(kSteps)});
}

Run train(const Seam& seam, Checker& checker, const Text& text, int64_t layers, int64_t steps,
          const Tensor& validation) {
  using Clock = std::chrono::steady_clock;
  Model model(seam, layers, text.vocabulary(), checker.seed());
  auto options = torch::optim::AdamWOptions().weight_decay(0.01);
  lockstep::FusedAdamW optimizer(model.original()->parameters(), options);
  Run run;
  const auto start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    guard_torch(checker, fmt::format("training with {} layers, step {}", layers, step + 1), [&] {
      const auto tokens = text.batch(checker.seed(), step * kBatch, kBatch);
      for (auto& group : optimizer.param_groups())
        static_cast<torch::optim::AdamWOptions&>(group.options()).lr(learning_rate(step));
      optimizer.zero_grad();
      const auto loss = seam.next_token_loss(model.logits(tokens), tokens);
      loss.backward();
      optimizer.step();
      run.losses.push_back(loss.item<double>());
      run.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      run.heap.push_back(heap_bytes());
    });
  }
  const torch::NoGradGuard no_grad;
  run.validation = seam.next_token_loss(model.logits(validation), validation).item<double>();
  for (const auto& weight : model.original()->parameters()) run.weights.push_back(weight);
  return run;
}

/// After so many calls the functions are still right, and keep nothing.
void check_end(const Seam& seam, Checker& checker, const Text& text, int64_t layers, const Run& run,
               const Tensor& validation) {
  const auto steps = static_cast<int64_t>(run.losses.size());
  const torch::NoGradGuard no_grad;
  Model model(seam, layers, text.vocabulary(), checker.seed());
  const auto weights = model.original()->parameters();
  for (size_t i = 0; i < weights.size(); ++i) weights[i].copy_(run.weights[i]);
  const double right = library_loss(model.original()->forward(validation), validation).item<double>();
  checker.expect(
      std::abs(run.validation - right) < 1e-3, "other loss in training",
      fmt::format("{} layers, after {} steps: the validation loss is {:.4f}; the library computes "
                  "{:.4f} with the same weights and text",
                  layers, steps, run.validation, right),
      "The first calls were right. Is something kept from call to call, such as a mask, a length or "
      "a counter?");
  const size_t half = run.heap.size() / 2, last = run.heap.size() - 1;
  const auto grown = static_cast<int64_t>(run.heap[last]) - static_cast<int64_t>(run.heap[half]);
  checker.expect(grown < 4096 * static_cast<int64_t>(last - half), "memory grows",
                 fmt::format("{} layers: from step {} to step {} the process has grown by {} bytes", layers,
                             half + 1, last + 1, grown),
                 "Something of every step is kept: a static list, or a tensor that holds on to its graph.");
}

void check_training(const Seam& seam, Checker& checker, const Text& text) {
  const auto validation = text.batch(checker.draw(7), 0, 128);
  const double floor = text.floor(checker.draw(7), 128);
  // In one process, so that there are many calls.
  const auto runs = checker.in_child([&] {
    return std::vector{train(seam, checker, text, 2, kSteps, validation),
                       train(seam, checker, text, 4, kSteps / 2, validation)};
  });
  const Run &two = runs[0], &four = runs[1];
  check_end(seam, checker, text, 2, two, validation);
  check_end(seam, checker, text, 4, four, validation);
  checker.note(fmt::format(
      "H {:.3f} nats a character; of the validation text {:.3f}; without attention at best {:.2f}; of {} "
      "equally likely ones {:.3f}",
      text.entropy(), floor, kWithoutAttention, text.vocabulary(),
      std::log(static_cast<double>(text.vocabulary()))));
  const auto line = [&](const Run& run, int64_t layers) {
    const auto steps = run.losses.size();
    checker.note(
        fmt::format("{} layers, {} steps, {:.2f} s: loss {:.3f}, half way {:.3f}; of the validation "
                    "text {:.3f}, perplexity {:.2f}",
                    layers, steps, run.seconds.back(), run.smooth(steps), run.smooth(steps / 2),
                    run.validation, std::exp(run.validation)));
  };
  line(two, 2);
  line(four, 4);
  const size_t steps = four.losses.size();
  checker.note(
      fmt::format("at equal steps, {}: 2 layers {:.3f} after {:.2f} s, 4 layers {:.3f} after {:.2f} s", steps,
                  two.smooth(steps), two.seconds[steps - 1], four.smooth(steps), four.seconds[steps - 1]));
  checker.proved(fmt::format(
      "trained on text of known entropy, {} and {} steps: afterwards the loss is still the library's, and "
      "nothing was kept",
      two.losses.size(), steps));
}

}  // namespace

void check_model(const Seam& seam, Checker& checker) {
  const Text text;
  check_one_pass(seam, checker, text);
  check_training(seam, checker, text);
}

}  // namespace lab::attention
