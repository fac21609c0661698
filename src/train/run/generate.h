#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/train/data/tokenizer.h"
#include "lockstep/train/models/transformer_config.h"

namespace lockstep::train {

struct GenerateOptions {
  std::string prompt = "\n";
  int64_t length = 200;    ///< Tokens.
  double temperature = 1;  ///< 0: always the likeliest.
  int64_t top_k = 0;       ///< Of the likeliest only so many; 0: all.
  uint64_t seed = 0;
};

/// Writes on behind a prompt; `show` gets the text of each token as it comes. A function of its arguments:
/// torch's generators are not touched. Throws UsageError if the prompt is empty or has characters that the
/// tokenizer does not know.
void generate(torch::nn::Sequential model, const TransformerConfig& config, const Tokenizer& tokenizer,
              const GenerateOptions& options, const std::function<void(const std::string&)>& show);

}  // namespace lockstep::train
