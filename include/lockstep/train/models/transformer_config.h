#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// The shape of a TinyTransformer, under the names that Hugging Face's config.json has for it. The defaults
/// are those of config/config.json.
struct TransformerConfig {
  /// Tokens of the vocabulary. For `lockstep train`: the most that a tokenizer may have; a run's own
  /// config.json says how many it has.
  int64_t vocab_size = 512;
  int64_t hidden_size = 64;
  int64_t num_hidden_layers = 2;
  int64_t num_attention_heads = 2;       ///< Divides hidden_size.
  int64_t intermediate_size = 256;       ///< Of the MLP in each block.
  int64_t max_position_embeddings = 64;  ///< The longest sequence.
  double layer_norm_eps = 1e-5;
  double hidden_dropout_prob = 0;           ///< After the embeddings, and of what each block adds.
  double attention_probs_dropout_prob = 0;  ///< Of the attention's weights.

  bool operator==(const TransformerConfig&) const = default;
};

/// Throws UsageError, naming key and value, if no such model can be made.
void check_config(const TransformerConfig& config);

/// Reads a JSON object; keys that are missing have their defaults. Throws UsageError, naming `source`, key
/// and value, for a key that is not known or given twice, a value of another type, and an impossible one.
TransformerConfig parse_config(std::string_view json, const std::string& source);
TransformerConfig read_config(const std::filesystem::path& file);

/// What parse_config() reads.
std::string to_json(const TransformerConfig& config);

}  // namespace lockstep
