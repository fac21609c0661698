#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Text as numbers from 0 to vocab_size() - 1, and back: decode(encode(text)) is text.
///
/// Immutable; a copy is another handle to the same vocabulary. Any thread may call. Byte positions in errors
/// count from 0.
class Tokenizer {
 public:
  /// The largest vocabulary.
  static constexpr int64_t kMaxVocab = int64_t{1} << 18;

  /// One token per Unicode code point that occurs in `text`, in their order. Throws UsageError if there is
  /// none, there are more than kMaxVocab, or `text` is not UTF-8.
  static Tokenizer characters(std::string_view text);

  /// The 256 bytes, then tokens made of two others: the pair that is most frequent in `text` within words,
  /// again and again, of several the smallest by the bytes of its first, then its second token. A word takes
  /// its leading space along; newlines stand alone; no token is longer than 256 bytes. The vocabulary is
  /// smaller than `vocab_size` if no pair is left that occurs twice. Throws UsageError unless `vocab_size` is
  /// between 256 and kMaxVocab.
  static Tokenizer byte_pairs(std::string_view text, int64_t vocab_size);

  /// What to_json() gave. Throws UsageError, naming `source` and the place, at anything else.
  static Tokenizer parse(std::string_view json, const std::string& source = "tokenizer json");

  /// Always the same text for the same vocabulary.
  std::string to_json() const;

  std::string_view kind() const;  ///< "char" or "bpe".
  int64_t vocab_size() const;

  /// Throws UsageError, naming character and byte position, if a character is not in the vocabulary, or
  /// `text` is not UTF-8; byte pairs encode any bytes up to a gigabyte.
  std::vector<int32_t> encode(std::string_view text) const;

  /// Throws UsageError, naming it and its position, for a token outside the vocabulary.
  std::string decode(const std::vector<int32_t>& tokens) const;

  /// A token's bytes: with byte pairs they need not be UTF-8. Throws UsageError if it is outside the
  /// vocabulary.
  const std::string& text_of(int32_t token) const;

 private:
  struct Vocabulary;
  explicit Tokenizer(std::shared_ptr<const Vocabulary> vocabulary);

  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace lockstep
