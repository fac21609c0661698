#include "lockstep/train/models/transformer_config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lockstep/error.h"

namespace lockstep {

namespace {

constexpr size_t kLongestFile = 1 << 20;

struct SizeKey {
  const char* name;
  int64_t TransformerConfig::*field;
  int64_t highest;
};
constexpr std::array kSizes = {
    SizeKey{"vocab_size", &TransformerConfig::vocab_size, 1'000'000},
    SizeKey{"hidden_size", &TransformerConfig::hidden_size, 65'536},
    SizeKey{"num_hidden_layers", &TransformerConfig::num_hidden_layers, 1'000},
    SizeKey{"num_attention_heads", &TransformerConfig::num_attention_heads, 65'536},
    SizeKey{"intermediate_size", &TransformerConfig::intermediate_size, 1'000'000},
    SizeKey{"max_position_embeddings", &TransformerConfig::max_position_embeddings, 65'536},
};

struct RealKey {
  const char* name;
  double TransformerConfig::*field;
  double lowest;
  double below;  ///< Less than this.
};
constexpr std::array kReals = {
    RealKey{"layer_norm_eps", &TransformerConfig::layer_norm_eps, 1e-12, 1},
    RealKey{"hidden_dropout_prob", &TransformerConfig::hidden_dropout_prob, 0, 1},
    RealKey{"attention_probs_dropout_prob", &TransformerConfig::attention_probs_dropout_prob, 0, 1},
};

/// A value may be a whole file: only its beginning is shown.
std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

std::string known_keys() {
  std::string names;
  for (const auto& key : kSizes) names += std::string(names.empty() ? "" : ", ") + key.name;
  for (const auto& key : kReals) names += std::string(", ") + key.name;
  return names;
}

/// Reads `key` into `config` if it is one of the table's; whether it was.
bool take(TransformerConfig& config, const std::string& source, const std::string& name,
          const nlohmann::json& value) {
  for (const auto& key : kSizes) {
    if (name != key.name) continue;
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) {
      throw UsageError(fmt::format("{}: {} is {}, expected a whole number", source, name, shown(value)));
    }
    config.*key.field = value.get<int64_t>();
    return true;
  }
  for (const auto& key : kReals) {
    if (name != key.name) continue;
    if (!value.is_number()) {
      throw UsageError(fmt::format("{}: {} is {}, expected a number", source, name, shown(value)));
    }
    config.*key.field = value.get<double>();
    return true;
  }
  return false;
}

/// nlohmann-json keeps the last of two equal keys: this refuses the second.
nlohmann::json parse_once(std::string_view json, const std::string& source) {
  std::set<std::string> keys;
  const nlohmann::json::parser_callback_t watch = [&](int depth, nlohmann::json::parse_event_t event,
                                                      nlohmann::json& value) {
    if (depth == 1 && event == nlohmann::json::parse_event_t::key && !keys.insert(value).second) {
      throw UsageError(fmt::format("{}: {} is given twice", source, shown(value)));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(json, watch);
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("{}: {}; hint: a JSON object such as config/config.json is expected", source,
                                 error.what()));
  }
}

void check(const TransformerConfig& config, const std::string& source) {
  for (const auto& key : kSizes) {
    const int64_t value = config.*key.field;
    if (value >= 1 && value <= key.highest) continue;
    throw UsageError(fmt::format("{}: {} is {}, expected 1 to {}", source, key.name, value, key.highest));
  }
  for (const auto& key : kReals) {
    const double value = config.*key.field;
    if (value >= key.lowest && value < key.below) continue;
    throw UsageError(fmt::format("{}: {} is {}, expected at least {} and less than {}", source, key.name,
                                 value, key.lowest, key.below));
  }
  if (config.hidden_size % config.num_attention_heads != 0) {
    throw UsageError(
        fmt::format("{}: num_attention_heads is {}, which does not divide hidden_size, {}; hint: every head "
                    "takes the same part",
                    source, config.num_attention_heads, config.hidden_size));
  }
}

}  // namespace

void check_config(const TransformerConfig& config) {
  check(config, "TransformerConfig");
}

TransformerConfig parse_config(std::string_view json, const std::string& source) {
  const auto document = parse_once(json, source);
  if (!document.is_object()) {
    throw UsageError(fmt::format("{}: {}, expected a JSON object", source, shown(document)));
  }
  TransformerConfig config;
  for (const auto& [name, value] : document.items()) {
    if (take(config, source, name, value)) continue;
    throw UsageError(
        fmt::format("{}: {} is not known; hint: known are {}", source, shown(name), known_keys()));
  }
  check(config, source);
  return config;
}

TransformerConfig read_config(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLongestFile + 1, '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(text.size())) && !stream.eof()) {
    throw UsageError(fmt::format("{}: cannot be read; hint: a file such as config/config.json is expected",
                                 file.string()));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kLongestFile) {
    throw UsageError(fmt::format("{}: longer than {} bytes", file.string(), kLongestFile));
  }
  return parse_config(text, file.string());
}

std::string to_json(const TransformerConfig& config) {
  auto document = nlohmann::ordered_json::object();
  for (const auto& key : kSizes) document[key.name] = config.*key.field;
  for (const auto& key : kReals) document[key.name] = config.*key.field;
  return document.dump(2) + "\n";
}

}  // namespace lockstep
