#include "train/run/task.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "lockstep/train/models/tiny_transformer.h"
#include "train/data/fetch.h"
#include "train/run/mnist_task.h"

namespace lockstep::train {

namespace {

/// The next token of a text.
class LanguageTask : public Task {
 public:
  LanguageTask(std::unique_ptr<Language> language, const TransformerConfig& config)
      : language_(std::move(language)), config_(config) {}

  int64_t train_size() const override { return language_->train_size(); }
  int64_t validation_size() const override { return language_->validation_size(); }

  Batch train_batch(const std::vector<size_t>& indices) const override {
    std::vector<int64_t> tokens;
    for (const size_t index : indices) language_->append_train(static_cast<int64_t>(index), tokens);
    return batch_of(tokens);
  }
  Batch validation_batch(int64_t begin, int64_t end) const override {
    std::vector<int64_t> tokens;
    for (int64_t index = begin; index < end; ++index) language_->append_validation(index, tokens);
    return batch_of(tokens);
  }

  torch::nn::Sequential make_model(uint64_t seed) const override {
    return torch::nn::Sequential(TinyTransformer(config_, seed)->layers());
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& targets) const override {
    return next_token_loss(output, targets);
  }
  int64_t tokens_per_sample() const override { return config_.max_position_embeddings; }
  std::string unit() const override { return "tokens"; }
  int64_t default_steps(int64_t batch) const override {
    constexpr int64_t kGrammarSteps = 1000, kTextEpochs = 20;
    if (entropy()) return kGrammarSteps;
    return std::max<int64_t>(1, kTextEpochs * train_size() / batch);
  }
  std::optional<double> entropy() const override { return language_->entropy(); }
  std::optional<Language::Floor> validation_floor() const override {
    return language_->validation_floor(validation_size());
  }
  std::string fingerprint() const override { return language_->fingerprint(); }

 private:
  /// Inputs are all tokens of a sample but the last, targets all but the first.
  Batch batch_of(std::vector<int64_t>& tokens) const {
    const int64_t length = config_.max_position_embeddings;
    const auto samples = static_cast<int64_t>(tokens.size()) / (length + 1);
    const auto all = at::from_blob(tokens.data(), {samples, length + 1}, at::kLong);
    // Copies: the tokens go when the caller returns.
    return {.inputs = all.slice(1, 0, length).clone(), .targets = all.slice(1, 1).clone()};
  }

  std::unique_ptr<Language> language_;
  TransformerConfig config_;
};

}  // namespace

Task::Score Task::score(const at::Tensor& output, const at::Tensor& targets) const {
  return {.right = output.argmax(-1).eq(targets).sum().item<int64_t>(), .all = targets.numel()};
}

std::unique_ptr<Task> make_task(const Run& run, const Variables& environment) {
  if (run.is_mnist()) return make_mnist_task(fetch(mnist(), environment));
  return std::make_unique<LanguageTask>(load_language(run.settings, run.config, *run.tokenizer, environment),
                                        run.config);
}

}  // namespace lockstep::train
