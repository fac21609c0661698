#include "train/models/causal_attention.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace lockstep::train {

at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, double dropout) {
  const int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  // [3, B, heads, T, D]
  const auto parts = qkv.view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  const auto query = parts[0], key = parts[1], value = parts[2];
  const double scale = 1 / std::sqrt(static_cast<double>(width / heads));
  const auto later = at::ones({length, length}, qkv.options().dtype(at::kBool)).triu(1);
  const auto scores = at::matmul(query * scale, key.transpose(-2, -1))
                          .masked_fill(later, -std::numeric_limits<double>::infinity());
  const auto weights = at::dropout(at::softmax(scores, -1), dropout, dropout > 0);
  return at::matmul(weights, value).transpose(1, 2).reshape({batch, length, width});
}

}  // namespace lockstep::train
