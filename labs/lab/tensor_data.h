#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "lab/data.h"

namespace lab::data {

/// A tensor as its type, shape and elements; an undefined one stays undefined. What autograd knows of it is
/// lost.
template <>
struct Form<at::Tensor> {
  static void put(std::string& bytes, const at::Tensor& tensor) {
    data::put(bytes, tensor.defined());
    if (!tensor.defined()) return;
    const at::Tensor whole = tensor.detach().contiguous();
    data::put(bytes, static_cast<int>(whole.scalar_type()));
    data::put(bytes, whole.sizes().vec());
    bytes.append(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
  }
  static at::Tensor get(Reader& reader) {
    if (!data::get<bool>(reader)) return {};
    const auto type = static_cast<at::ScalarType>(data::get<int>(reader));
    const auto sizes = data::get<std::vector<int64_t>>(reader);
    const at::Tensor tensor = torch::empty(sizes, type);
    const auto taken = reader.take(tensor.nbytes());
    if (!taken.empty()) std::memcpy(tensor.data_ptr(), taken.data(), taken.size());
    return tensor;
  }
};

}  // namespace lab::data
