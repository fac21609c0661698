#include "train/run/task.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/train/models/tiny_transformer.h"
#include "parallel/default_generator.h"
#include "parallel/seed.h"
#include "train/data/fetch.h"
#include "train/data/idx.h"

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

/// The digit of an image.
class MnistTask : public Task {
 public:
  explicit MnistTask(const Variables& environment) {
    const auto folder = fetch(mnist(), environment);
    const auto read = [&](size_t file) { return read_idx(folder / mnist().files[file].path); };
    train_ = {.images = read(0), .labels = read(1)};
    validation_ = {.images = read(2), .labels = read(3)};
  }

  int64_t train_size() const override { return train_.labels.shape[0]; }
  int64_t validation_size() const override { return validation_.labels.shape[0]; }
  Batch train_batch(const std::vector<size_t>& indices) const override { return batch_of(train_, indices); }
  Batch validation_batch(int64_t begin, int64_t end) const override {
    std::vector<size_t> indices(static_cast<size_t>(end - begin));
    std::iota(indices.begin(), indices.end(), static_cast<size_t>(begin));
    return batch_of(validation_, indices);
  }

  torch::nn::Sequential make_model(uint64_t seed) const override {
    const parallel::KeepDefaultGenerator keep;
    torch::nn::Sequential layers;
    const std::vector<int64_t> widths = {kPixels, 128, 64, 10};
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      torch::nn::Linear linear(widths[i], widths[i + 1]);
      const at::NoGradGuard no_grad;
      auto generator =
          at::detail::createCPUGenerator(parallel::derive_seed(seed, parallel::Stream::kWeights, i));
      const double bound = std::sqrt(6.0 / static_cast<double>(widths[i]));
      linear->weight.uniform_(-bound, bound, generator);
      linear->bias.zero_();
      layers->push_back("linear" + std::to_string(i), linear);
      if (i + 2 < widths.size()) layers->push_back("relu" + std::to_string(i), torch::nn::ReLU());
    }
    return layers;
  }
  at::Tensor loss(const at::Tensor& output, const at::Tensor& targets) const override {
    return at::cross_entropy_loss(output, targets);
  }
  int64_t tokens_per_sample() const override { return 1; }
  std::string unit() const override { return "images"; }
  int64_t default_steps(int64_t batch) const override {
    return std::max<int64_t>(1, 2 * train_size() / batch);
  }

 private:
  static constexpr int64_t kPixels = 28 * 28;
  struct Images {
    Idx images, labels;
  };

  static Batch batch_of(const Images& from, const std::vector<size_t>& indices) {
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch = {.inputs = at::empty({count, kPixels}, at::kFloat),
                   .targets = at::empty({count}, at::kLong)};
    float* pixel = batch.inputs.data_ptr<float>();
    int64_t* label = batch.targets.data_ptr<int64_t>();
    for (const size_t index : indices) {
      const uint8_t* const image = from.images.values.data() + index * kPixels;
      for (int64_t i = 0; i < kPixels; ++i) *pixel++ = static_cast<float>(image[i]) / 255;
      *label++ = from.labels.values[index];
    }
    return batch;
  }

  Images train_, validation_;
};

}  // namespace

Task::Score Task::score(const at::Tensor& output, const at::Tensor& targets) const {
  return {.right = output.argmax(-1).eq(targets).sum().item<int64_t>(), .all = targets.numel()};
}

std::unique_ptr<Task> make_task(const Run& run, const Variables& environment) {
  if (run.is_mnist()) return std::make_unique<MnistTask>(environment);
  return std::make_unique<LanguageTask>(load_language(run.settings, run.config, *run.tokenizer, environment),
                                        run.config);
}

}  // namespace lockstep::train
