#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/safetensors.h"

// Contents for files of tests.
#include "support/temporary_folder.h"

namespace lockstep::test {

inline std::vector<std::byte> random_bytes(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Random tensors with their bytes.
struct Sample {
  std::vector<std::vector<std::byte>> contents;
  std::vector<train::TensorData> tensors;
};

inline Sample random_sample(unsigned seed) {
  static constexpr std::string_view kNames[] = {"w", "layer.0.weight", "größe", "\"quote\"\\\n", ""};
  std::mt19937 random(seed);
  Sample sample;
  for (size_t i = 0, count = random() % 5; i < count; ++i) {
    train::TensorData tensor{.name = std::string(kNames[i]),
                             .type = static_cast<train::TensorType>(random() % 10)};
    for (size_t k = random() % 4; k > 0; --k) tensor.shape.push_back(static_cast<int64_t>(random() % 5));
    sample.contents.push_back(
        random_bytes(static_cast<size_t>(*train::tensor_bytes(tensor.type, tensor.shape)), seed + 1000));
    tensor.bytes = sample.contents.back();
    sample.tensors.push_back(tensor);
  }
  train::order_by_width(sample.tensors);
  return sample;
}

/// A safetensors file with this JSON and so many bytes of data.
inline std::string file_with(std::string_view json, size_t data_bytes) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return text + std::string(json) + std::string(data_bytes, '\1');
}

/// The whole file of these tensors.
inline std::string file_of(const std::vector<train::TensorData>& tensors) {
  std::string text = train::safetensors_header(tensors);
  for (const auto& tensor : tensors) {
    text.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return text;
}

inline train::SafetensorsHeader parse_file(const std::string& file) {
  return train::parse_safetensors(file, file.size(), "x.safetensors");
}

}  // namespace lockstep::test
