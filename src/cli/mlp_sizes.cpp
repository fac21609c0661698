#include "cli/mlp_sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

/// A whole number in [low, high] and nothing else; -1 otherwise.
int64_t whole_number(std::string_view text, int64_t low, int64_t high) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= low && value <= high ? value : -1;
}

MlpSizes parse_model(const std::string& text) {
  constexpr std::string_view kKind = "mlp:";
  const auto cross = text.find('x');
  MlpSizes model;
  if (text.starts_with(kKind) && cross != std::string::npos) {
    const std::string_view sizes = text;
    model.dim = whole_number(sizes.substr(kKind.size(), cross - kKind.size()), 1, 16'384);
    model.depth = whole_number(sizes.substr(cross + 1), 1, 1000);
  }
  if (model.dim < 1 || model.depth < 1) {
    throw UsageError(
        fmt::format("--model '{}': not a model; hint: mlp:WIDTHxLAYERS, such as mlp:128x16 (width up to "
                    "16384, up to 1000 layers)",
                    text));
  }
  return model;
}

int64_t parse_batch(const std::string& text) {
  const int64_t batch = whole_number(text, 1, 1'000'000);
  if (batch < 1) {
    throw UsageError(
        fmt::format("--batch '{}': not a number of samples; hint: from 1 to 1000000, one for all models or "
                    "one for each, such as 32,64",
                    text));
  }
  return batch;
}

}  // namespace

std::string MlpSizes::name() const {
  return fmt::format("mlp:{}x{}", dim, depth);
}

int64_t MlpSizes::parameter_count() const {
  return depth * dim * (dim + 1);
}

std::vector<MlpSizes> parse_mlps(const std::string& models, const std::string& batches) {
  std::vector<MlpSizes> parsed;
  for (const auto& part : parts_of(models)) parsed.push_back(parse_model(part));
  if (parsed.empty()) throw UsageError("--model '': names nothing; hint: like mlp:128x16");
  std::vector<int64_t> samples;
  for (const auto& part : parts_of(batches)) samples.push_back(parse_batch(part));
  if (samples.size() != 1 && samples.size() != parsed.size()) {
    throw UsageError(fmt::format("--batch '{}': {} batches for {} models; hint: one for all, or one for each",
                                 batches, samples.size(), parsed.size()));
  }
  for (size_t i = 0; i < parsed.size(); ++i) parsed[i].batch = samples[samples.size() == 1 ? 0 : i];
  return parsed;
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace lockstep::cli
