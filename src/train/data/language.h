#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/data/grammar.h"
#include "lockstep/train/data/tokenizer.h"

namespace lockstep::train {

/// Text cut into samples of `length` tokens and the one behind each: sample i is `length` + 1 tokens.
class Language {
 public:
  virtual ~Language() = default;

  virtual int64_t train_size() const = 0;
  virtual int64_t validation_size() const = 0;
  /// Appends the tokens of a sample.
  virtual void append_train(int64_t index, std::vector<int64_t>& tokens) const = 0;
  virtual void append_validation(int64_t index, std::vector<int64_t>& tokens) const = 0;

  /// What no model can get below on average, in nats a token; none if nobody knows.
  virtual std::optional<double> entropy() const { return std::nullopt; }
  /// The same of the very tokens of the first `samples` of validation, and the standard error of that mean.
  struct Floor {
    double nats;
    double standard_error;
    /// Whether a loss is so low that the tokens to guess must have leaked into the input.
    bool is_passed_by(double loss) const { return loss < nats - standard_error; }
  };
  virtual std::optional<Floor> validation_floor(int64_t) const { return std::nullopt; }
  /// Differs if the text does: its XXH3; "" of one that is made by the program.
  virtual std::string fingerprint() const { return ""; }
};

/// Samples of the built-in grammar, each from the beginning of a sentence. They are made when asked for.
class GrammarLanguage : public Language {
 public:
  GrammarLanguage(Tokenizer tokenizer, int64_t length, uint64_t seed);

  int64_t train_size() const override;
  int64_t validation_size() const override;
  void append_train(int64_t index, std::vector<int64_t>& tokens) const override;
  void append_validation(int64_t index, std::vector<int64_t>& tokens) const override;
  std::optional<double> entropy() const override;
  std::optional<Floor> validation_floor(int64_t samples) const override;

 private:
  void append(uint64_t seed, int64_t index, std::vector<int64_t>& tokens) const;

  Grammar grammar_;
  Tokenizer tokenizer_;
  size_t length_;
  uint64_t train_seed_, validation_seed_;
};

/// The XXH3 of a text, in hexadecimal digits.
std::string fingerprint_of(std::string_view text);

/// A text: its last tenth is for validation.
class TextLanguage : public Language {
 public:
  /// Throws UsageError, naming `source`, if the text is too short for one sample of each kind.
  TextLanguage(const std::string& text, const Tokenizer& tokenizer, int64_t length,
               const std::string& source);

  int64_t train_size() const override { return train_size_; }
  int64_t validation_size() const override { return validation_size_; }
  void append_train(int64_t index, std::vector<int64_t>& tokens) const override;
  void append_validation(int64_t index, std::vector<int64_t>& tokens) const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  void append(int64_t begin, std::vector<int64_t>& tokens) const;

  int64_t length_;
  std::string fingerprint_;
  std::vector<int32_t> tokens_;
  int64_t train_size_ = 0, validation_size_ = 0, validation_begin_ = 0;
};

}  // namespace lockstep::train
