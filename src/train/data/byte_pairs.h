#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::train {

/// Two tokens that become one. Tokens 0 to 255 are the bytes; merge i makes token 256 + i.
using Merge = std::pair<int32_t, int32_t>;

inline constexpr int32_t kByteCount = 256;

/// The longest token: a merge beyond it is not learned, and refused in a file, where each could double the
/// one before.
inline constexpr size_t kMaxTokenBytes = 256;

/// The longest text that byte pairs are learned from or encoded.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

/// The bytes of every token.
std::vector<std::string> token_texts(const std::vector<Merge>& merges);

/// The word that begins at byte `position` of `text`: a newline alone, or at most one space and all up to the
/// next space or newline.
std::string_view word_at(std::string_view text, size_t position);

/// Learns at most `most` merges (Sennrich, Haddow and Birch, 2016): again and again the pair of neighbours
/// within a word that is most frequent in `text` becomes a token, everywhere from left to right; of several,
/// the smallest by the bytes of its left token, then of its right. Ends early when no pair is there twice.
///
/// Each distinct word is looked at once and weighs as often as it occurs. A merge costs time proportional to
/// the places where it happens, whatever the length of words. Throws UsageError if `text` is longer than
/// kMaxTextBytes.
std::vector<Merge> learn_merges(std::string_view text, size_t most);

/// Applies merges to text.
class PairEncoder {
 public:
  /// Each merge names tokens before its own, and no pair is there twice.
  explicit PairEncoder(const std::vector<Merge>& merges);

  /// The tokens of `text`: in each word the earliest merge first, from left to right. n log n in the length
  /// of a word; a word that was there before costs a look-up. Throws UsageError if `text` is longer than
  /// kMaxTextBytes.
  std::vector<int32_t> encode(std::string_view text) const;

 private:
  /// The token that a pair becomes; -1 if it stays two.
  int32_t merged(int32_t left, int32_t right) const;
  void append_word(std::string_view word, std::vector<int32_t>& tokens) const;

  std::unordered_map<uint64_t, int32_t> merged_;
};

}  // namespace lockstep::train
