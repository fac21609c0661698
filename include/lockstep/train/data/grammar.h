#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Text whose entropy is known exactly, from a small built-in grammar of English-like sentences.
///
/// "the red cats that tom sees like a ball here.\n": a verb agrees with its subject, also behind a relative
/// clause with a subject of its own. A model that reads all of a text cannot get below entropy(); one that
/// forgets the subject stays above it. The loss of a model that is fed '\n' before a text's first character
/// compares with entropy() as it stands: sentences do not depend on each other.
///
/// A character's probability is that of its edge in a deterministic automaton, so nothing here is estimated.
/// Immutable: any thread may call.
class Grammar {
 public:
  Grammar();

  /// Sample `index` of the stream `seed`: the first `length` characters of an endless run of sentences, each
  /// of which ends with '\n'. A function of its arguments alone: not of the platform, nor of the standard
  /// library's distributions. A shorter sample is the beginning of a longer one.
  std::string sample(uint64_t seed, uint64_t index, size_t length) const;

  /// The mean entropy, in nats a character, of the first `length` characters of a run of sentences; exact, by
  /// dynamic programming over the automaton, in time proportional to `length`. Throws UsageError if `length`
  /// is 0.
  double entropy(size_t length) const;

  /// -ln p of each character of `text`, which begins with a sentence, given all before it. Throws UsageError,
  /// naming the place (from 0), the character and what could stand there, at one that cannot.
  std::vector<double> surprisal(std::string_view text) const;

  /// Every character that it makes, sorted, '\n' included.
  const std::string& alphabet() const { return alphabet_; }

 private:
  struct Edge {
    char character;
    uint32_t weight;
    uint32_t to;
  };
  struct State {
    std::vector<Edge> edges;
    uint32_t weight = 0;  ///< The sum of the edges'.
  };

  void add_word(uint32_t from, std::string_view text, uint32_t weight, uint32_t to);

  std::vector<State> states_;  ///< First one per slot of the grammar, then those within words.
  std::string alphabet_;
};

}  // namespace lockstep
