#include "train/data/byte_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "lockstep/error.h"

namespace lockstep::train {

namespace {

constexpr uint32_t kNone = UINT32_MAX;

uint64_t key_of(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32U) | static_cast<uint32_t>(right);
}

int32_t byte_of(char character) {
  return static_cast<unsigned char>(character);
}

void check_length(std::string_view text) {
  if (text.size() <= kMaxTextBytes) return;
  throw UsageError(
      fmt::format("Tokenizer: the text has {} bytes; hint: at most {} at once", text.size(), kMaxTextBytes));
}

/// A token in a word, linked to its neighbours; -1 once its left neighbour has taken it in.
struct Piece {
  int32_t token;
  uint32_t previous;
  uint32_t next;
};

void append_pieces(std::string_view word, std::vector<Piece>& pieces) {
  const auto begin = static_cast<uint32_t>(pieces.size());
  const auto end = begin + static_cast<uint32_t>(word.size());
  for (uint32_t at = begin; at < end; ++at) {
    pieces.push_back({.token = byte_of(word[at - begin]),
                      .previous = at == begin ? kNone : at - 1,
                      .next = at + 1 == end ? kNone : at + 1});
  }
}

/// Makes `token` of the piece at `left` and the one behind it.
void join(std::vector<Piece>& pieces, uint32_t left, int32_t token) {
  Piece& right = pieces[pieces[left].next];
  pieces[left].token = token;
  pieces[left].next = right.next;
  if (right.next != kNone) pieces[right.next].previous = left;
  right.token = -1;
}

/// The distinct words of a text as pieces, and how often each pair of neighbours occurs.
class PairCounts {
 public:
  explicit PairCounts(std::string_view text) {
    std::unordered_map<std::string_view, int64_t> words;
    for (size_t at = 0; at < text.size();) {
      const std::string_view word = word_at(text, at);
      ++words[word];
      at += word.size();
    }
    for (const auto& [word, count] : words) {
      append_pieces(word, pieces_);
      weights_.resize(pieces_.size(), count);
    }
    for (uint32_t at = 0; at < pieces_.size(); ++at) {
      if (pieces_[at].next != kNone) add(at);
    }
  }

  int64_t count(Merge pair) const {
    const auto found = pairs_.find(key_of(pair.first, pair.second));
    return found == pairs_.end() ? 0 : found->second.count;
  }

  std::vector<Merge> all() const {
    std::vector<Merge> found;
    for (const auto& [key, pair] : pairs_) {
      found.emplace_back(static_cast<int32_t>(key >> 32U), static_cast<int32_t>(key & UINT32_MAX));
    }
    return found;
  }

  /// Makes `token` of the pair wherever it is; returns the pairs that are new by that.
  std::vector<Merge> merge(Merge pair, int32_t token) {
    const auto node = pairs_.extract(key_of(pair.first, pair.second));
    std::vector<Merge> added;
    for (const uint32_t at : node.mapped().places) {
      // A merge further left, or an earlier one, may have taken either piece.
      const uint32_t next = pieces_[at].next;
      if (pieces_[at].token != pair.first || next == kNone || pieces_[next].token != pair.second) continue;
      const uint32_t previous = pieces_[at].previous;
      if (previous != kNone) remove(previous);
      if (pieces_[next].next != kNone) remove(next);
      join(pieces_, at, token);
      if (previous != kNone && add(previous)) added.emplace_back(pieces_[previous].token, token);
      const uint32_t behind = pieces_[at].next;
      if (behind != kNone && add(at)) added.emplace_back(token, pieces_[behind].token);
    }
    return added;
  }

 private:
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> places;  ///< Of left pieces, ascending; some may be over.
  };

  uint64_t key_at(uint32_t left) const {
    return key_of(pieces_[left].token, pieces_[pieces_[left].next].token);
  }

  /// Whether it is the first of its kind.
  bool add(uint32_t left) {
    const auto [pair, is_new] = pairs_.try_emplace(key_at(left));
    pair->second.count += weights_[left];
    pair->second.places.push_back(left);
    return is_new;
  }

  void remove(uint32_t left) {
    const auto pair = pairs_.find(key_at(left));
    if (pair != pairs_.end()) pair->second.count -= weights_[left];
  }

  std::vector<Piece> pieces_;
  std::vector<int64_t> weights_;  ///< Of each piece: how often its word occurs.
  std::unordered_map<uint64_t, Pair> pairs_;
};

}  // namespace

std::vector<std::string> token_texts(const std::vector<Merge>& merges) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < kByteCount; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : merges) {
    texts.push_back(texts[static_cast<size_t>(left)] + texts[static_cast<size_t>(right)]);
  }
  return texts;
}

std::string_view word_at(std::string_view text, size_t position) {
  const size_t first = text[position] == ' ' ? position + 1 : position;
  if (text[position] == '\n') return text.substr(position, 1);
  return text.substr(position, std::min(text.find_first_of(" \n", first), text.size()) - position);
}

std::vector<Merge> learn_merges(std::string_view text, size_t most) {
  check_length(text);
  struct Candidate {
    int64_t count;
    Merge pair;
  };
  PairCounts counts(text);
  std::vector<std::string> texts = token_texts({});
  const auto text_of = [&](int32_t token) -> const std::string& { return texts[static_cast<size_t>(token)]; };
  const auto is_worse = [&](const Candidate& a, const Candidate& b) {
    if (a.count != b.count) return a.count < b.count;
    if (a.pair.first != b.pair.first) return text_of(a.pair.first) > text_of(b.pair.first);
    return text_of(a.pair.second) > text_of(b.pair.second);
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(is_worse)> queue(is_worse);
  const auto consider = [&](const std::vector<Merge>& pairs) {
    for (const Merge& pair : pairs) {
      const bool fits = text_of(pair.first).size() + text_of(pair.second).size() <= kMaxTokenBytes;
      if (fits && counts.count(pair) > 1) queue.push({counts.count(pair), pair});
    }
  };
  consider(counts.all());
  std::vector<Merge> merges;
  while (merges.size() < most && !queue.empty()) {
    const auto [count, pair] = queue.top();
    queue.pop();
    // Counts only fall behind the queue's back, so a pair whose count still holds is the best of all.
    if (count != counts.count(pair)) {
      consider({pair});
      continue;
    }
    merges.push_back(pair);
    texts.push_back(text_of(pair.first) + text_of(pair.second));
    consider(counts.merge(pair, static_cast<int32_t>(texts.size()) - 1));
  }
  return merges;
}

PairEncoder::PairEncoder(const std::vector<Merge>& merges) {
  merged_.reserve(merges.size());
  int32_t token = kByteCount;
  for (const auto& [left, right] : merges) merged_.emplace(key_of(left, right), token++);
}

int32_t PairEncoder::merged(int32_t left, int32_t right) const {
  const auto found = merged_.find(key_of(left, right));
  return found == merged_.end() ? -1 : found->second;
}

void PairEncoder::append_word(std::string_view word, std::vector<int32_t>& tokens) const {
  std::vector<Piece> pieces;
  append_pieces(word, pieces);
  // What a merge makes takes part in later merges only, so the smallest token and place come first.
  using Step = std::pair<int32_t, uint32_t>;
  std::priority_queue<Step, std::vector<Step>, std::greater<>> steps;
  const auto merged_at = [&](uint32_t left) {
    const uint32_t next = pieces[left].next;
    return next == kNone ? -1 : merged(pieces[left].token, pieces[next].token);
  };
  const auto consider = [&](uint32_t left) {
    const int32_t token = merged_at(left);
    if (token >= 0) steps.emplace(token, left);
  };
  for (uint32_t at = 0; at < pieces.size(); ++at) consider(at);
  while (!steps.empty()) {
    const auto [token, left] = steps.top();
    steps.pop();
    if (pieces[left].token < 0 || merged_at(left) != token) continue;
    join(pieces, left, token);
    consider(left);
    if (pieces[left].previous != kNone) consider(pieces[left].previous);
  }
  for (uint32_t at = 0; at != kNone; at = pieces[at].next) tokens.push_back(pieces[at].token);
}

std::vector<int32_t> PairEncoder::encode(std::string_view text) const {
  check_length(text);
  struct Span {
    size_t begin;
    size_t count;
  };
  std::vector<int32_t> tokens;
  std::unordered_map<std::string_view, Span> known;
  for (size_t at = 0; at < text.size();) {
    const std::string_view word = word_at(text, at);
    const auto [place, is_new] = known.try_emplace(word, Span{tokens.size(), 0});
    auto& [begin, count] = place->second;
    if (is_new) {
      append_word(word, tokens);
      count = tokens.size() - begin;
    } else {
      for (size_t i = 0; i < count; ++i) tokens.push_back(tokens[begin + i]);
    }
    at += word.size();
  }
  return tokens;
}

}  // namespace lockstep::train
