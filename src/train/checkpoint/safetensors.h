#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/seal.h"

namespace lockstep::train {

// The safetensors format (huggingface.co/docs/safetensors): the length N of the header as 8 bytes,
// little-endian; N bytes of JSON, padded with spaces; then the tensors' bytes in C order, without holes. It
// has no checksum: ours is in the manifest of the checkpoint.

enum class TensorType : uint8_t { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

/// As in the file: "BOOL", "F32".
std::string_view name(TensorType type);
std::optional<TensorType> find_tensor_type(std::string_view name);
uint64_t element_bytes(TensorType type);

inline constexpr size_t kLengthBytes = 8;  ///< Of N.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;
inline constexpr size_t kMostDimensions = 64;

/// Bytes of a tensor with these sizes; nothing if a size is negative, there are more than kMostDimensions, or
/// the strides in bytes would not fit an int64_t.
std::optional<uint64_t> tensor_bytes(TensorType type, const std::vector<int64_t>& shape);

/// A tensor in a file.
struct TensorEntry {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  ///< Empty for a scalar.
  uint64_t begin = 0;          ///< Its bytes are [begin, end) of the data.
  uint64_t end = 0;

  bool operator==(const TensorEntry&) const = default;
};

/// A tensor to be written.
struct TensorData {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  ///< In C order.
};

/// Everything of the file that comes before the data of `tensors`, which then follow in this order. The
/// metadata get "format": "pt". Throws UsageError naming the tensor if a name is there twice, is
/// "__metadata__" or no UTF-8, if bytes do not fit the shape, or if a tensor would not begin at a multiple of
/// its element's size, which Python's safetensors cannot open: see order_by_width().
std::string safetensors_header(const std::vector<TensorData>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

/// Wide types first, otherwise in the same order: so each tensor is aligned to its type.
void order_by_width(std::vector<TensorData>& tensors);

/// Writes a new file with the tensors ordered by width; see write_sealed().
Seal write_safetensors(const std::filesystem::path& folder, const std::string& name,
                       std::vector<TensorData> tensors,
                       const std::map<std::string, std::string>& metadata = {});

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< In the order of their data.
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  ///< Where the data begin in the file.

  bool operator==(const SafetensorsHeader&) const = default;
};

/// Reads the header of a file of `file_bytes`, whose first bytes are `start_of_file`: at least the header.
/// Throws Error naming the file, and the tensor at fault, if a rule of the format is broken: what is returned
/// has no name twice, no hole, no overlap, ends where the file ends, and tensor_bytes() is each tensor's
/// length.
SafetensorsHeader parse_safetensors(std::string_view start_of_file, uint64_t file_bytes,
                                    const std::string& file_name);

/// A file mapped into memory, read-only. Nobody may make it shorter meanwhile.
class SafetensorsFile {
 public:
  /// Throws Error if the file cannot be read, or as parse_safetensors().
  explicit SafetensorsFile(const std::filesystem::path& file);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const SafetensorsHeader& header() const { return header_; }
  /// Null if there is none of that name.
  const TensorEntry* find(std::string_view name) const;
  /// The bytes of one of header().tensors; valid as long as this object. Others' files may not be aligned.
  std::span<const std::byte> bytes(const TensorEntry& tensor) const;

 private:
  std::span<const std::byte> mapping_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> position_of_;  // in header_.tensors
};

}  // namespace lockstep::train
