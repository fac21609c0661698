#include "lockstep/train/data/tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "lockstep/error.h"
#include "plan/json_node.h"
#include "train/data/byte_pairs.h"
#include "train/data/utf8.h"

namespace lockstep {

using plan::Json;
using plan::Node;
using train::Merge;

namespace {

constexpr int kJsonVersion = 1;
// The largest vocabulary needs five megabytes.
constexpr size_t kMostJsonBytes = size_t{8} << 20U;

train::CodePoint checked_code_point(std::string_view text, size_t position) {
  if (const auto found = train::code_point_at(text, position)) return *found;
  throw UsageError(
      fmt::format("Tokenizer: byte {} is 0x{:02x}, which begins no UTF-8 character; hint: only byte pairs "
                  "encode any bytes",
                  position, static_cast<unsigned char>(text[position])));
}

void check_size(size_t size) {
  if (size <= static_cast<size_t>(Tokenizer::kMaxVocab)) return;
  throw UsageError(
      fmt::format("Tokenizer: a vocabulary of {}; hint: at most {}", size, Tokenizer::kMaxVocab));
}

}  // namespace

struct Tokenizer::Vocabulary {
  std::vector<std::string> texts;
  std::unordered_map<char32_t, int32_t> characters;  ///< Empty with byte pairs.
  std::vector<Merge> merges;
  std::optional<train::PairEncoder> pairs;  ///< Nothing with characters.

  static std::shared_ptr<const Vocabulary> of_characters(std::vector<std::string> texts) {
    auto made = std::make_shared<Vocabulary>();
    for (const std::string& text : texts) {
      made->characters.emplace(checked_code_point(text, 0).value,
                               static_cast<int32_t>(made->characters.size()));
    }
    made->texts = std::move(texts);
    return made;
  }

  static std::shared_ptr<const Vocabulary> of_merges(std::vector<Merge> merges) {
    auto made = std::make_shared<Vocabulary>();
    made->texts = train::token_texts(merges);
    made->pairs.emplace(merges);
    made->merges = std::move(merges);
    return made;
  }

  std::vector<int32_t> encode_characters(std::string_view text) const {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
      const train::CodePoint code_point = checked_code_point(text, position);
      const auto found = characters.find(code_point.value);
      if (found == characters.end()) {
        throw UsageError(
            fmt::format("Tokenizer: byte {} begins {}, which is not among the {} characters of the "
                        "vocabulary; hint: make "
                        "the vocabulary from all of the text, or use byte pairs",
                        position, train::shown(text, position, code_point), texts.size()));
      }
      tokens.push_back(found->second);
      position += code_point.bytes;
    }
    return tokens;
  }
};

namespace {

/// A document without keys that are there twice: the reader would keep the last.
Json read_document(std::string_view json, const std::string& source) {
  if (json.size() > kMostJsonBytes) {
    throw UsageError(fmt::format("{}: {} bytes, more than {}", source, json.size(), kMostJsonBytes));
  }
  std::set<std::string> keys;
  const auto check_key = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key && !keys.insert(parsed.get<std::string>()).second) {
      throw UsageError(
          fmt::format("{}: '{}' is there twice", source, plan::shown(parsed.get<std::string>())));
    }
    return true;
  };
  try {
    return Json::parse(json, check_key);
  } catch (const Json::parse_error& error) {
    throw UsageError(fmt::format("{}: not valid JSON from byte {} on", source, error.byte));
  } catch (const Json::out_of_range&) {
    throw UsageError(fmt::format("{}: a number is out of range", source));
  }
}

void check_count(const Node& list, size_t least, size_t most) {
  if (list.size() >= least && list.size() <= most) return;
  list.refuse(fmt::format("has {} entries, not between {} and {}", list.size(), least, most));
}

std::vector<std::string> read_characters(const Node& list) {
  check_count(list, 1, Tokenizer::kMaxVocab);
  std::vector<std::string> texts;
  for (size_t i = 0; i < list.size(); ++i) {
    const Node node = list.at(i);
    const std::string& text = node.text();
    const auto code_point = text.empty() ? std::nullopt : train::code_point_at(text, 0);
    if (!code_point || code_point->bytes != text.size()) {
      node.refuse(fmt::format("'{}' is not one character", plan::shown(text)));
    }
    // The order of UTF-8's bytes is that of code points.
    if (i > 0 && texts.back() == text) node.refuse(train::shown(text, 0, *code_point) + " is there twice");
    if (i > 0 && texts.back() > text) {
      node.refuse(train::shown(text, 0, *code_point) + " is behind a greater character");
    }
    texts.push_back(text);
  }
  return texts;
}

std::vector<Merge> read_merges(const Node& list) {
  check_count(list, 0, Tokenizer::kMaxVocab - train::kByteCount);
  std::vector<Merge> merges;
  std::vector<std::string> texts = train::token_texts({});
  std::unordered_set<std::string> known(texts.begin(), texts.end());
  for (size_t i = 0; i < list.size(); ++i) {
    const Node node = list.at(i);
    if (node.size() != 2) node.refuse(fmt::format("has {} entries, not 2", node.size()));
    const int before = static_cast<int>(texts.size()) - 1;
    const Merge merge{node.at(size_t{0}).number(0, before), node.at(size_t{1}).number(0, before)};
    std::string text = texts[static_cast<size_t>(merge.first)] + texts[static_cast<size_t>(merge.second)];
    if (text.size() > train::kMaxTokenBytes) {
      node.refuse(fmt::format("makes a token of {} bytes, more than {}", text.size(), train::kMaxTokenBytes));
    }
    if (!known.insert(text).second) node.refuse("makes a token that is there already");
    texts.push_back(std::move(text));
    merges.push_back(merge);
  }
  return merges;
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}

Tokenizer Tokenizer::characters(std::string_view text) {
  std::set<std::string_view> found;
  for (size_t position = 0; position < text.size();) {
    const size_t bytes = checked_code_point(text, position).bytes;
    found.insert(text.substr(position, bytes));
    position += bytes;
  }
  if (found.empty())
    throw UsageError("Tokenizer: the text is empty; hint: its characters are the vocabulary");
  check_size(found.size());
  return Tokenizer(Vocabulary::of_characters({found.begin(), found.end()}));
}

Tokenizer Tokenizer::byte_pairs(std::string_view text, int64_t vocab_size) {
  if (vocab_size < train::kByteCount || vocab_size > kMaxVocab) {
    throw UsageError(fmt::format("Tokenizer: a vocabulary of {}; hint: byte pairs need {} to {}", vocab_size,
                                 train::kByteCount, kMaxVocab));
  }
  const auto most = static_cast<size_t>(vocab_size - train::kByteCount);
  return Tokenizer(Vocabulary::of_merges(train::learn_merges(text, most)));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& source) {
  const Json document = read_document(json, source);
  const Node root(source, document, "");
  root.at("lockstep_tokenizer").number(kJsonVersion, kJsonVersion);
  const Node kind = root.at("kind");
  const bool is_characters = kind.text() == "char";
  if (!is_characters && kind.text() != "bpe") {
    kind.refuse(fmt::format("'{}' is unknown; hint: char or bpe", plan::shown(kind.text())));
  }
  const Node list = root.at(is_characters ? "tokens" : "merges");
  if (document.size() != 3) root.refuse(fmt::format("has {} entries, not 3", document.size()));
  if (is_characters) return Tokenizer(Vocabulary::of_characters(read_characters(list)));
  return Tokenizer(Vocabulary::of_merges(read_merges(list)));
}

std::string Tokenizer::to_json() const {
  std::string list;
  if (vocabulary_->pairs) {
    for (const auto& [left, right] : vocabulary_->merges) {
      list += fmt::format("{}[{}, {}]", list.empty() ? "" : ", ", left, right);
    }
  } else {
    for (const std::string& text : vocabulary_->texts) {
      list += (list.empty() ? "" : ", ") + Json(text).dump();
    }
  }
  return fmt::format("{{\"lockstep_tokenizer\": {},\n\"kind\": \"{}\",\n\"{}\": [{}]}}\n", kJsonVersion,
                     kind(), vocabulary_->pairs ? "merges" : "tokens", list);
}

std::string_view Tokenizer::kind() const {
  return vocabulary_->pairs ? "bpe" : "char";
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(vocabulary_->texts.size());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  return vocabulary_->pairs ? vocabulary_->pairs->encode(text) : vocabulary_->encode_characters(text);
}

std::string Tokenizer::decode(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size()) {
      throw UsageError(
          fmt::format("Tokenizer: token {} is {}; hint: they are 0 to {}", i, tokens[i], vocab_size() - 1));
    }
    text += vocabulary_->texts[static_cast<size_t>(tokens[i])];
  }
  return text;
}

const std::string& Tokenizer::text_of(int32_t token) const {
  if (token < 0 || token >= vocab_size()) {
    throw UsageError(
        fmt::format("Tokenizer: there is no token {}; hint: they are 0 to {}", token, vocab_size() - 1));
  }
  return vocabulary_->texts[static_cast<size_t>(token)];
}

}  // namespace lockstep
