#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/comms/types.h"

namespace lockstep {

/// The DataType of a C++ type; tensors of half types come by their own adapter.
template <typename T>
constexpr DataType data_type_of() {
  if constexpr (std::is_same_v<T, float>) return DataType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DataType::kFloat64;
  if constexpr (std::is_same_v<T, int32_t>) return DataType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DataType::kInt64;
  if constexpr (std::is_same_v<T, uint8_t>) return DataType::kUInt8;
  if constexpr (std::is_same_v<T, bool>) return DataType::kBool;
}

/// Specialised for types that are contiguous elements in memory, such as tensors: `static Buffer of(const
/// T&)`.
template <typename T>
struct BufferOf;

/// Contiguous elements in memory that somebody else owns.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kFloat32;

  Buffer() = default;
  Buffer(void* memory, int64_t elements, DataType element_type)
      : data(memory), count(elements), type(element_type) {}
  template <typename T>
  Buffer(std::span<T> elements)  // NOLINT(google-explicit-constructor): a view
      : Buffer(elements.data(), static_cast<int64_t>(elements.size()), data_type_of<T>()) {}
  template <typename T>
  Buffer(std::vector<T>& elements)  // NOLINT(google-explicit-constructor): a view
      : Buffer(std::span<T>(elements)) {}
  template <typename T>
  requires requires(const T& object) { BufferOf<T>::of(object); }
  Buffer(const T& object) : Buffer(BufferOf<T>::of(object)) {}  // NOLINT(google-explicit-constructor): a view

  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(type); }
};

}  // namespace lockstep
