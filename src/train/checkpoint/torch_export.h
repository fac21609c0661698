#pragma once

#include <filesystem>
#include <vector>

#include "train/checkpoint/safetensors.h"

namespace lockstep::train {

/// Writes a file that Python's torch.load(file, weights_only=True) opens as a dict of name to tensor, from
/// PyTorch 1.13 on. The file is there whole or not at all, and replaces one of that name. Throws UsageError
/// if a name is there twice or no UTF-8, if bytes do not fit the shape, or if it would be 4 GiB or more;
/// Error if it cannot be written.
void write_torch_file(const std::filesystem::path& file, const std::vector<TensorData>& tensors);

}  // namespace lockstep::train
