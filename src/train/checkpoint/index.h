#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/safetensors.h"

namespace lockstep::train {

/// The file that tells in which file each weight is, as Hugging Face's tools know it.
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

struct WeightsIndex {
  std::map<std::string, std::string> file_of;  ///< By the weight's name.
  uint64_t total_bytes = 0;                    ///< Of all weights.

  bool operator==(const WeightsIndex&) const = default;
};

/// {"metadata":{"total_size":8},"weight_map":{"bias":"model-00001-of-00001.safetensors"}}. Throws UsageError
/// if a name is no UTF-8, or a file's no file name.
std::string weights_index(const std::map<std::string, std::string>& file_of, uint64_t total_bytes);

/// Reads that back, and nothing else; throws Error that starts with `origin`.
WeightsIndex parse_weights_index(std::string_view text, const std::string& origin);

/// The weights in the files model-00001-of-0000S.safetensors of a checkpoint, mapped into memory.
class ModelWeights {
 public:
  struct Weight {
    TensorData tensor;  ///< Its bytes are valid as long as the ModelWeights.
    std::string file;   ///< Name of the file.
  };

  /// Throws Error if one of the S files is missing or broken, if a weight is in two of them, or if the index
  /// is missing or tells otherwise.
  explicit ModelWeights(const std::filesystem::path& checkpoint);

  /// By file, in the order of their data.
  const std::vector<Weight>& weights() const { return weights_; }
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  std::vector<SafetensorsFile> files_;
  std::vector<Weight> weights_;
  uint64_t total_bytes_ = 0;
};

}  // namespace lockstep::train
