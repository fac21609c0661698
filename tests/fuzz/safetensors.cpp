// Any bytes as a safetensors file: a refusal by the file's name, or a header that keeps every rule of the
// format and can be written again.
#include "train/checkpoint/safetensors.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "lockstep/error.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace train = lockstep::train;
  using lockstep::fuzz::require;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  train::SafetensorsHeader header;
  try {
    header = train::parse_safetensors(file, size, "a file");
  } catch (const lockstep::Error& refusal) {
    lockstep::fuzz::require_readable(refusal);
    require(std::string_view(refusal.what()).starts_with("safetensors a file: "), "a refusal names the file");
    return 0;
  }
  std::uint64_t end = 0;
  std::vector<train::TensorData> tensors;
  const auto bytes = std::as_bytes(std::span(file)).subspan(header.data_begin);
  for (const auto& tensor : header.tensors) {
    require(tensor.begin == end && tensor.begin <= tensor.end, "no hole, no overlap");
    require(train::tensor_bytes(tensor.type, tensor.shape) == tensor.end - tensor.begin, "the shape fits");
    end = tensor.end;
    tensors.push_back({.name = tensor.name,
                       .type = tensor.type,
                       .shape = tensor.shape,
                       .bytes = bytes.subspan(tensor.begin, tensor.end - tensor.begin)});
  }
  require(header.data_begin + end == size, "the data end where the file ends");
  train::order_by_width(tensors);
  const std::string written = train::safetensors_header(tensors, header.metadata);
  const auto again = train::parse_safetensors(written, written.size() + end, "again");
  require(again.tensors.size() == tensors.size(), "every tensor is written");
  for (const auto& tensor : again.tensors) {
    const auto is_same = [&](const train::TensorEntry& other) {
      return other.name == tensor.name && other.type == tensor.type && other.shape == tensor.shape;
    };
    require(std::any_of(header.tensors.begin(), header.tensors.end(), is_same),
            "a tensor reads back to itself");
  }
  return 0;
}
