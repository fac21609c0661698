#include "train/data/language.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "lockstep/error.h"
#include "parallel/seed.h"

namespace lockstep::train {

namespace {

/// An epoch of the grammar: its samples never end, so that any number would do.
constexpr int64_t kGrammarSamples = 1 << 20;
constexpr int64_t kGrammarValidationSamples = 512;
constexpr double kValidationPart = 0.1;

}  // namespace

GrammarLanguage::GrammarLanguage(Tokenizer tokenizer, int64_t length, uint64_t seed)
    : tokenizer_(std::move(tokenizer)),
      length_(static_cast<size_t>(length)),
      train_seed_(parallel::derive_seed(seed, parallel::Stream::kBatches)),
      validation_seed_(parallel::derive_seed(seed, parallel::Stream::kValidation)) {}

int64_t GrammarLanguage::train_size() const {
  return kGrammarSamples;
}

int64_t GrammarLanguage::validation_size() const {
  return kGrammarValidationSamples;
}

void GrammarLanguage::append(uint64_t seed, int64_t index, std::vector<int64_t>& tokens) const {
  // The newline ends the sentence before: the first thing to guess is how a sentence begins.
  const std::string text = "\n" + grammar_.sample(seed, static_cast<uint64_t>(index), length_);
  for (const int32_t token : tokenizer_.encode(text)) tokens.push_back(token);
}

void GrammarLanguage::append_train(int64_t index, std::vector<int64_t>& tokens) const {
  append(train_seed_, index, tokens);
}

void GrammarLanguage::append_validation(int64_t index, std::vector<int64_t>& tokens) const {
  append(validation_seed_, index, tokens);
}

std::optional<double> GrammarLanguage::entropy() const {
  return grammar_.entropy(length_);
}

std::optional<Language::Floor> GrammarLanguage::validation_floor(int64_t samples) const {
  // Characters of a sample depend on each other, samples do not: the error is that of the mean of samples.
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < samples; ++i) {
    double nats = 0;
    for (const double one :
         grammar_.surprisal(grammar_.sample(validation_seed_, static_cast<uint64_t>(i), length_))) {
      nats += one;
    }
    nats /= static_cast<double>(length_);
    sum += nats;
    squares += nats * nats;
  }
  const auto count = static_cast<double>(samples);
  const double mean = sum / count;
  return Floor{.nats = mean,
               .standard_error = std::sqrt(std::max(0.0, squares / count - mean * mean) / count)};
}

std::string fingerprint_of(std::string_view text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

TextLanguage::TextLanguage(const std::string& text, const Tokenizer& tokenizer, int64_t length,
                           const std::string& source)
    : length_(length), fingerprint_(fingerprint_of(text)), tokens_(tokenizer.encode(text)) {
  const auto count = static_cast<int64_t>(tokens_.size());
  validation_begin_ =
      count - std::max(length + 1, static_cast<int64_t>(kValidationPart * static_cast<double>(count)));
  train_size_ = (validation_begin_ - 1) / length;
  validation_size_ = (count - validation_begin_ - 1) / length;
  if (train_size_ < 1 || validation_begin_ < 1) {
    throw UsageError(
        fmt::format("--data {}: {} tokens, at least {} are needed: a sequence of {} and the token behind "
                    "it, to train and to validate; hint: more text, or a smaller max_position_embeddings",
                    source, count, 2 * (length + 1), length));
  }
}

void TextLanguage::append(int64_t begin, std::vector<int64_t>& tokens) const {
  const auto first = tokens_.begin() + begin;
  tokens.insert(tokens.end(), first, first + length_ + 1);
}

void TextLanguage::append_train(int64_t index, std::vector<int64_t>& tokens) const {
  append(index * length_, tokens);
}

void TextLanguage::append_validation(int64_t index, std::vector<int64_t>& tokens) const {
  append(validation_begin_ + index * length_, tokens);
}

}  // namespace lockstep::train
