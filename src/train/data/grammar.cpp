#include "lockstep/train/data/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lockstep/error.h"
#include "parallel/seed.h"
#include "train/data/grammar_table.h"
#include "train/data/split_mix64.h"

namespace lockstep {

namespace grammar = train::grammar;

namespace {

double probability(uint32_t weight, uint32_t of) {
  return static_cast<double>(weight) / static_cast<double>(of);
}

std::string shown(char character) {
  const auto byte = static_cast<unsigned char>(character);
  if (character == '\n') return "'\\n'";
  return byte < 0x20 || byte >= 0x7f ? fmt::format("byte 0x{:02x}", byte) : fmt::format("'{}'", character);
}

std::string shown_choice(std::string_view characters) {
  std::string text;
  for (const char character : characters) text += (text.empty() ? "" : ", ") + shown(character);
  return text;
}

}  // namespace

Grammar::Grammar() : states_(grammar::kSlotCount) {
  std::set<char> characters;
  for (const grammar::Rule& rule : grammar::kRules) {
    for (const grammar::Word& word : rule.words) {
      add_word(rule.from, word.text, rule.share * word.share, rule.to);
      characters.insert(word.text.begin(), word.text.end());
    }
  }
  alphabet_.assign(characters.begin(), characters.end());
}

// A slot is a trie of its words, each of which ends in the slot behind it.
void Grammar::add_word(uint32_t from, std::string_view text, uint32_t weight, uint32_t to) {
  uint32_t at = from;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_last = i + 1 == text.size();
    State& state = states_[at];
    state.weight += weight;
    const auto known = std::ranges::find(state.edges, text[i], &Edge::character);
    if (known == state.edges.end()) {
      at = is_last ? to : static_cast<uint32_t>(states_.size());
      state.edges.push_back({.character = text[i], .weight = weight, .to = at});
      if (!is_last) states_.emplace_back();
    } else {
      if (is_last || known->to < grammar::kSlotCount) {
        throw Error(fmt::format("grammar: '{}' begins like a whole word of its slot", text));
      }
      known->weight += weight;
      at = known->to;
    }
  }
}

std::string Grammar::sample(uint64_t seed, uint64_t index, size_t length) const {
  train::SplitMix64 numbers(parallel::derive_seed(seed, parallel::Stream::kTask, index));
  std::string text;
  text.reserve(length);
  uint32_t at = grammar::kSentence;
  while (text.size() < length) {
    const State& state = states_[at];
    auto edge = state.edges.begin();
    if (state.edges.size() > 1) {
      uint64_t draw = numbers.below(state.weight);
      while (draw >= edge->weight) draw -= (edge++)->weight;
    }
    text += edge->character;
    at = edge->to;
  }
  return text;
}

double Grammar::entropy(size_t length) const {
  if (length == 0) throw UsageError("Grammar: the entropy of 0 characters; hint: ask for at least 1");
  std::vector<double> reached(states_.size(), 0.0);
  reached[grammar::kSentence] = 1.0;
  double total = 0.0;
  for (size_t i = 0; i < length; ++i) {
    std::vector<double> next(states_.size(), 0.0);
    for (size_t from = 0; from < states_.size(); ++from) {
      if (reached[from] == 0.0) continue;
      for (const Edge& edge : states_[from].edges) {
        const double p = probability(edge.weight, states_[from].weight);
        total -= reached[from] * p * std::log(p);
        next[edge.to] += reached[from] * p;
      }
    }
    reached = std::move(next);
  }
  return total / static_cast<double>(length);
}

std::vector<double> Grammar::surprisal(std::string_view text) const {
  std::vector<double> nats;
  nats.reserve(text.size());
  uint32_t at = grammar::kSentence;
  for (const char character : text) {
    const State& state = states_[at];
    const auto edge = std::ranges::find(state.edges, character, &Edge::character);
    if (edge == state.edges.end()) {
      std::string possible;
      for (const Edge& each : state.edges) possible += each.character;
      std::ranges::sort(possible);
      throw UsageError(fmt::format("Grammar: character {} is {}; hint: the grammar makes {} there",
                                   nats.size(), shown(character), shown_choice(possible)));
    }
    nats.push_back(-std::log(probability(edge->weight, state.weight)));
    at = edge->to;
  }
  return nats;
}

}  // namespace lockstep
