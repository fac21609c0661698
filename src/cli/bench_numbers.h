#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <vector>

namespace lockstep::cli {

/// Writes tensors of float32 for peers to read: little-endian, one number behind the other. Throws Error.
void write_numbers(const std::filesystem::path& file, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::cli
