#include "train/checkpoint/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/strict_json.h"

namespace lockstep::train {

namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostIndexBytes = uint64_t{64} << 20;

/// The only value of an object with this one key.
const Json& only(const Json& object, const char* key, const std::string& origin) {
  if (!object.is_object() || object.size() != 1 || !object.contains(key)) {
    throw Error(fmt::format("{}: {}, expected an object with '{}' alone", origin, shown_json(object), key));
  }
  return object.at(key);
}

/// "model-00002-of-00003.safetensors" for 2 of 3.
std::string model_file(size_t number, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

/// All files of the model, in order; throws Error if the names do not make a whole.
std::vector<std::string> model_files(const std::filesystem::path& folder) {
  std::vector<std::string> found;
  for (const std::string& name : names_in(folder)) {
    if (name.starts_with("model-") && name.ends_with(".safetensors")) found.push_back(name);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string expected = model_file(i + 1, found.size());
    if (found[i] == expected) continue;
    throw Error(fmt::format("checkpoint {}: found {} among {} files of the model, expected {}",
                            folder.string(), shown_text(found[i]), found.size(), expected));
  }
  if (found.empty()) {
    throw Error(fmt::format("checkpoint {}: has no {}", folder.string(), model_file(1, 1)));
  }
  return found;
}

/// Throws Error unless the index tells of these weights.
void check_index(const std::filesystem::path& file, const WeightsIndex& found) {
  const WeightsIndex told = parse_weights_index(read_text(file, kMostIndexBytes), file.string());
  if (told == found) return;
  for (const auto& [name, place] : found.file_of) {
    const auto entry = told.file_of.find(name);
    if (entry != told.file_of.end() && entry->second == place) continue;
    throw Error(fmt::format("{}: {} is in {}, not in {}", file.string(), shown_text(name), place,
                            entry == told.file_of.end() ? "the index" : entry->second));
  }
  throw Error(fmt::format("{}: tells of {} weights with {} bytes, found {} with {}", file.string(),
                          told.file_of.size(), told.total_bytes, found.file_of.size(), found.total_bytes));
}

}  // namespace

std::string weights_index(const std::map<std::string, std::string>& file_of, uint64_t total_bytes) {
  for (const auto& [name, file] : file_of) {
    if (is_file_name(file)) continue;
    throw UsageError(
        fmt::format("weights index: {}: {} is no file name", shown_text(name), shown_text(file)));
  }
  const Json document = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", Json(file_of)}};
  try {
    return document.dump(2) + "\n";
  } catch (const Json::type_error&) {
    throw UsageError("weights index: the name of a weight is no UTF-8");
  }
}

WeightsIndex parse_weights_index(std::string_view text, const std::string& origin) {
  const Json document = parse_strict(text, origin);
  if (document.size() != 2 || !document.contains("metadata") || !document.contains("weight_map")) {
    throw Error(fmt::format("{}: expected the keys 'metadata' and 'weight_map' alone", origin));
  }
  const std::string metadata = origin + ": metadata";  // a temporary here: GCC 14 would warn
  const Json& total = only(document.at("metadata"), "total_size", metadata);
  if (!total.is_number_unsigned() || total.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
    throw Error(fmt::format("{}: total_size is {}, expected a number of bytes", origin, shown_json(total)));
  }
  const Json& map = document.at("weight_map");
  if (!map.is_object()) {
    throw Error(fmt::format("{}: weight_map is {}, expected an object", origin, shown_json(map)));
  }
  WeightsIndex index{.total_bytes = total.get<uint64_t>()};
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string() || !is_file_name(file.get_ref<const std::string&>())) {
      throw Error(
          fmt::format("{}: {} is in {}, which is no file name", origin, shown_text(name), shown_json(file)));
    }
    index.file_of[name] = file.get<std::string>();
  }
  return index;
}

ModelWeights::ModelWeights(const std::filesystem::path& checkpoint) {
  WeightsIndex found;
  for (const std::string& name : model_files(checkpoint)) {
    const SafetensorsFile& file = files_.emplace_back(checkpoint / name);
    for (const TensorEntry& entry : file.header().tensors) {
      const auto [other, is_new] = found.file_of.emplace(entry.name, name);
      if (!is_new) {
        throw Error(fmt::format("checkpoint {}: {} is in {} and in {}", checkpoint.string(),
                                shown_text(entry.name), other->second, name));
      }
      weights_.push_back({.tensor = {.name = entry.name,
                                     .type = entry.type,
                                     .shape = entry.shape,
                                     .bytes = file.bytes(entry)},
                          .file = name});
      found.total_bytes += entry.end - entry.begin;
    }
  }
  total_bytes_ = found.total_bytes;
  check_index(checkpoint / kIndexName, found);
}

}  // namespace lockstep::train
