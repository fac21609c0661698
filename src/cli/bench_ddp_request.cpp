#include "cli/bench_ddp_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "cli/nearest.h"
#include "cli/size.h"
#include "launch/memory.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

/// A whole number in [low, high] and nothing else; -1 otherwise.
int64_t whole_number(std::string_view text, int64_t low, int64_t high) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= low && value <= high ? value : -1;
}

DdpModel parse_model(const std::string& text) {
  constexpr std::string_view kKind = "mlp:";
  const auto cross = text.find('x');
  DdpModel model;
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

std::string DdpModel::name() const {
  return fmt::format("mlp:{}x{}", dim, depth);
}

int64_t DdpModel::parameter_count() const {
  return depth * dim * (dim + 1);
}

std::vector<DdpModel> parse_ddp_models(const std::string& models, const std::string& batches) {
  std::vector<DdpModel> parsed;
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

std::vector<std::string> parse_ddp_peers(const std::string& list) {
  const std::vector<std::string> known = {"pytorch", "libtorch"};
  std::vector<std::string> systems;
  for (const auto& peer : parts_of(list)) {
    if (std::find(known.begin(), known.end(), peer) == known.end()) {
      const std::string near = nearest(peer, known);
      throw UsageError(
          fmt::format("--peers '{}': there is no such peer; hint: {}", peer,
                      near.empty() ? "pytorch,libtorch" : fmt::format("did you mean {}?", near)));
    }
    const std::vector<std::string> rows = peer == "pytorch"
                                              ? std::vector<std::string>{"pytorch-ddp", "pytorch-ddp-views"}
                                              : std::vector<std::string>{"libtorch"};
    for (const auto& row : rows) {
      if (std::find(systems.begin(), systems.end(), row) == systems.end()) systems.push_back(row);
    }
  }
  return systems;
}

void require_ddp_memory(const DdpBench& bench, size_t systems) {
  const auto available = static_cast<double>(launch::memory().available_bytes);
  for (const auto& model : bench.models) {
    // Weights, gradients, two moments and buckets; what forward keeps of each layer; the batches.
    const double numbers =
        static_cast<double>(model.parameter_count()) * 5 +
        static_cast<double>(model.batch * model.dim * (model.depth * 3 + 2 * bench.batches));
    const double needed =
        numbers * sizeof(float) * static_cast<double>(bench.world) * static_cast<double>(systems);
    if (needed <= available) continue;
    throw UsageError(
        fmt::format("--model {} with batches of {}: {} ranks of {} systems need about {}, and {} of memory "
                    "are free; hint: a "
                    "narrower model, fewer ranks or fewer peers",
                    model.name(), model.batch, bench.world, systems, bytes_text(static_cast<int64_t>(needed)),
                    bytes_text(static_cast<int64_t>(available))));
  }
}

std::string weights_file(size_t model) {
  return fmt::format("weights-{}.f32", model);
}

std::string inputs_file(size_t model, int rank) {
  return fmt::format("inputs-{}-{}.f32", model, rank);
}

std::string targets_file(size_t model, int rank) {
  return fmt::format("targets-{}-{}.f32", model, rank);
}

}  // namespace lockstep::cli
