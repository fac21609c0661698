#include "train/models/causal_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "lockstep/error.h"
#include "train/distance.h"
#include "train/models/kernels/kernels.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Result {
  torch::Tensor output, gradient;  ///< Of qkv, by a weighted sum of the output.
};

/// Gradients of the output, which differ from each other.
torch::Tensor slopes(int64_t count) {
  return torch::arange(count, torch::kDouble).mul(0.7).sin().to(torch::kFloat);
}

template <typename Attention>
Result run(const Attention& attention, const torch::Tensor& qkv, int64_t heads, double dropout) {
  auto input = qkv.detach().clone().requires_grad_();
  torch::manual_seed(5);  // what is dropped
  const auto output = attention(input, heads, dropout);
  (output * slopes(output.numel()).view_as(output).to(output.scalar_type())).sum().backward();
  return {output.detach(), input.grad()};
}

struct AttentionShape {
  int64_t batch, length, heads, depth;
};

void PrintTo(const AttentionShape& shape, std::ostream* out) {
  *out << "B" << shape.batch << "T" << shape.length << "H" << shape.heads << "D" << shape.depth;
}

class CausalAttention : public testing::TestWithParam<AttentionShape> {
 protected:
  static torch::Tensor draw() {
    const AttentionShape& shape = GetParam();
    torch::manual_seed(1);
    return torch::randn({shape.batch, shape.length, 3 * shape.heads * shape.depth});
  }
};

TEST_P(CausalAttention, EqualsTheFormulaInDoubleAndSoDoesItsGradient) {
  const auto qkv = draw();
  const auto ours = run(causal_attention, qkv, GetParam().heads, 0);
  const auto formula = run(naive_causal_attention, qkv.to(torch::kDouble), GetParam().heads, 0);
  EXPECT_LT(test::distance(ours.output, formula.output), 2e-6);
  EXPECT_LT(test::distance(ours.gradient, formula.gradient), 1e-5);
}

TEST_P(CausalAttention, DropsTheWeightsThatTheFormulaDrops) {
  const auto qkv = draw();
  const auto ours = run(causal_attention, qkv, GetParam().heads, 0.3);
  const auto formula = run(naive_causal_attention, qkv, GetParam().heads, 0.3);
  EXPECT_LT(test::distance(ours.output, formula.output), 5e-6);
  EXPECT_LT(test::distance(ours.gradient, formula.gradient), 2e-5);
}

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all = {
      {1, 1, 1, 1}, {3, 64, 2, 32}, {2, 7, 3, 5}, {2, 65, 1, 33}, {1, 130, 2, 3}};
  for (int64_t length = 1; length <= 64; ++length) all.push_back({2, length, 2, 1 + length % 19});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CausalAttention, testing::ValuesIn(shapes()),
                         testing::PrintToStringParamName());

/// The same head by every set of kernels that this CPU has.
TEST(AttentionKernels, AllSetsEqualTheFormula) {
  constexpr int64_t kLength = 37, kDepth = 11, kStride = 3 * kDepth;
  torch::manual_seed(2);
  const auto qkv = torch::randn({1, kLength, kStride});
  const auto formula = run(naive_causal_attention, qkv.to(torch::kDouble), 1, 0);
  const auto slope = slopes(kLength * kDepth);
  for (const auto* kernels :
       {&kernels::portable_kernels(), kernels::avx2_kernels(), kernels::avx512_kernels()}) {
    if (kernels == nullptr) continue;
    SCOPED_TRACE(kernels->name);
    const kernels::Head head = {.length = kLength,
                                .depth = kDepth,
                                .stride = kStride,
                                .scale = 1 / std::sqrt(static_cast<float>(kDepth))};
    const float* const base = qkv.data_ptr<float>();
    const kernels::AttentionInput input = {base, base + kDepth, base + 2 * kDepth, nullptr};
    // What was never set must not be read: it is no number.
    const auto unset = [](int64_t count) { return torch::full({count}, NAN); };
    auto weights = unset(kernels::padded(kLength) * kernels::padded(kLength));
    auto scratch = unset(kernels::attention_scratch(kLength, kDepth));
    auto output = unset(kLength * kDepth), gradient = unset(kLength * kStride);
    kernels->attention_forward(head, input, weights.data_ptr<float>(), output.data_ptr<float>(), kDepth,
                               scratch.data_ptr<float>());
    EXPECT_LT(test::distance(output.view_as(formula.output), formula.output), 2e-6);
    scratch.fill_(NAN);
    float* const to = gradient.data_ptr<float>();
    kernels->attention_backward(head, input, weights.data_ptr<float>(), slope.data_ptr<float>(), kDepth,
                                {to, to + kDepth, to + 2 * kDepth}, scratch.data_ptr<float>());
    EXPECT_LT(test::distance(gradient.view_as(formula.gradient), formula.gradient), 1e-5);
  }
}

TEST(CausalAttention, LargeScoresAreNoOverflow) {
  const auto qkv = torch::randn({1, 9, 12}) * 100;
  const auto ours = run(causal_attention, qkv, 2, 0);
  const auto formula = run(naive_causal_attention, qkv.to(torch::kDouble), 2, 0);
  EXPECT_LT(test::distance(ours.output, formula.output) / 100, 1e-4);
  EXPECT_TRUE(ours.gradient.isfinite().all().item<bool>());
}

TEST(CausalAttention, WhatIsNoNumberStaysSo) {
  auto qkv = torch::randn({1, 5, 6});
  qkv[0][2][0] = NAN;
  const auto output = causal_attention(qkv, 1, 0);
  EXPECT_TRUE(output[0].slice(0, 0, 2).isfinite().all().item<bool>());
  EXPECT_TRUE(output[0][2].isnan().all().item<bool>());
}

TEST(CausalAttention, ReadsColumnsThatAreNotContiguous) {
  const auto wide = torch::randn({2, 6, 24});
  const auto part = wide.slice(2, 0, 12);
  EXPECT_TRUE(torch::equal(causal_attention(part, 2, 0), causal_attention(part.contiguous(), 2, 0)));
}

TEST(CausalAttention, AnyNumberOfThreadsGivesTheSameBits) {
  const auto qkv = torch::randn({5, 33, 3 * 24});
  const int before = torch::get_num_threads();
  torch::set_num_threads(1);
  const auto one = run(causal_attention, qkv, 3, 0.1);
  torch::set_num_threads(3);
  const auto three = run(causal_attention, qkv, 3, 0.1);
  torch::set_num_threads(before);
  EXPECT_TRUE(torch::equal(one.output, three.output));
  EXPECT_TRUE(torch::equal(one.gradient, three.gradient));
}

TEST(CausalAttention, RefusesAGradientOfItsGradient) {
  const auto qkv = torch::randn({1, 4, 6}).requires_grad_();
  const auto sum = causal_attention(qkv, 1, 0).sum();
  EXPECT_THAT([&] { torch::autograd::grad({sum}, {qkv}, {}, true, /*create_graph=*/true); },
              ThrowsMessage<UsageError>(HasSubstr("a gradient of its gradient")));
}

}  // namespace
}  // namespace lockstep::train
