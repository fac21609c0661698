#include "train/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "lockstep/error.h"
#include "train/checkpoint/strict_json.h"

namespace lockstep::train {

namespace {

struct TypeFacts {
  std::string_view name;
  uint64_t bytes;
};

constexpr std::array<TypeFacts, 10> kTypes = {{{"BOOL", 1},
                                               {"U8", 1},
                                               {"I8", 1},
                                               {"I16", 2},
                                               {"I32", 4},
                                               {"I64", 8},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"F32", 4},
                                               {"F64", 8}}};
constexpr size_t kHeaderAlignment = 8;

[[noreturn]] void refuse(const TensorData& tensor, std::string_view reason) {
  throw UsageError(fmt::format("safetensors: tensor {}: {}", shown_text(tensor.name), reason));
}

std::string json_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw UsageError(fmt::format("safetensors: {} is no UTF-8", shown_text(text)));
  }
}

std::string metadata_json(std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  std::string json = "{";
  for (const auto& [key, value] : metadata) {
    if (json.size() > 1) json += ',';
    json += json_text(key) + ':' + json_text(value);
  }
  return json + '}';
}

void check(const TensorData& tensor, uint64_t begin) {
  if (tensor.name == "__metadata__") refuse(tensor, "the format keeps this name for itself");
  const auto bytes = tensor_bytes(tensor.type, tensor.shape);
  if (bytes != tensor.bytes.size()) {
    refuse(tensor, fmt::format("has {} bytes, but {} of shape [{}] {}", tensor.bytes.size(),
                               name(tensor.type), fmt::join(tensor.shape, ","),
                               bytes ? fmt::format("has {}", *bytes) : std::string("is not possible")));
  }
  if (begin % element_bytes(tensor.type) != 0) {
    refuse(tensor, fmt::format("would begin at byte {} of the data, which is no multiple of {}; hint: "
                               "order_by_width()",
                               begin, element_bytes(tensor.type)));
  }
}

}  // namespace

std::string_view name(TensorType type) {
  return kTypes.at(static_cast<size_t>(type)).name;
}

std::optional<TensorType> find_tensor_type(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &TypeFacts::name);
  if (found == kTypes.end()) return std::nullopt;
  return static_cast<TensorType>(found - kTypes.begin());
}

uint64_t element_bytes(TensorType type) {
  return kTypes.at(static_cast<size_t>(type)).bytes;
}

std::optional<uint64_t> tensor_bytes(TensorType type, const std::vector<int64_t>& shape) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (shape.size() > kMostDimensions) return std::nullopt;
  uint64_t bytes = element_bytes(type);
  bool is_empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    is_empty = is_empty || size == 0;
    // An empty tensor has strides, too.
    const uint64_t factor = size == 0 ? 1 : static_cast<uint64_t>(size);
    if (bytes > kMost / factor) return std::nullopt;
    bytes *= factor;
  }
  return is_empty ? 0 : bytes;
}

std::string safetensors_header(const std::vector<TensorData>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string json = "{\"__metadata__\":" + metadata_json(metadata);
  std::unordered_set<std::string_view> names;
  uint64_t begin = 0;
  for (const TensorData& tensor : tensors) {
    check(tensor, begin);
    if (!names.insert(tensor.name).second) refuse(tensor, "is there twice");
    const uint64_t end = begin + tensor.bytes.size();
    fmt::format_to(std::back_inserter(json), R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   json_text(tensor.name), name(tensor.type), fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  json += '}';
  json.resize((json.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  if (json.size() > kMostHeaderBytes) {
    throw UsageError(fmt::format("safetensors: a header of {} bytes, more than {}; hint: several files",
                                 json.size(), kMostHeaderBytes));
  }
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) length += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json;
}

void order_by_width(std::vector<TensorData>& tensors) {
  std::ranges::stable_sort(tensors, std::ranges::greater(),
                           [](const TensorData& tensor) { return element_bytes(tensor.type); });
}

Seal write_safetensors(const std::filesystem::path& folder, const std::string& name,
                       std::vector<TensorData> tensors, const std::map<std::string, std::string>& metadata) {
  order_by_width(tensors);
  const std::string header = safetensors_header(tensors, metadata);
  Pieces pieces = {std::as_bytes(std::span(header))};
  for (const TensorData& tensor : tensors) pieces.push_back(tensor.bytes);
  return write_sealed(folder, name, pieces);
}

}  // namespace lockstep::train
