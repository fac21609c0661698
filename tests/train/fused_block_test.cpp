#include "train/models/fused_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "lockstep/error.h"
#include "train/distance.h"
#include "train/models/kernels/kernels.h"
#include "train/models/transformer_layers.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Weights of distinct values: a fresh norm's are all 1, and a fresh bias is 0.
Block make_block(int64_t width, int64_t heads, int64_t inner, double dropout) {
  Block block(TransformerConfig{.hidden_size = width,
                                .num_attention_heads = heads,
                                .intermediate_size = inner,
                                .hidden_dropout_prob = dropout,
                                .attention_probs_dropout_prob = dropout});
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : block->parameters()) {
    if (parameter.dim() == 1)
      parameter.add_(torch::randn_like(parameter) * 0.3);
    else
      parameter.normal_(0, 1 / std::sqrt(static_cast<double>(width)));
  }
  return block;
}

/// The output, and the gradients of the input and of every parameter.
std::vector<torch::Tensor> run(Block& block, const torch::Tensor& x, bool naive) {
  block->zero_grad();
  auto input = x.detach().clone().requires_grad_();
  torch::manual_seed(5);  // what is dropped
  const auto output = naive ? block->naive_forward(input) : block->forward(input);
  const auto slopes = torch::arange(output.numel(), torch::kDouble).mul(0.7).sin().view_as(output);
  (output * slopes.to(output.scalar_type())).sum().backward();
  std::vector<torch::Tensor> all = {output.detach(), input.grad()};
  for (const auto& parameter : block->parameters()) all.push_back(parameter.grad().clone());
  return all;
}

void expect_close(const std::vector<torch::Tensor>& ours, const std::vector<torch::Tensor>& theirs,
                  double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    const double size = std::max(1.0, theirs[i].abs().max().item<double>());
    EXPECT_LT(test::distance(ours[i], theirs[i]) / size, tolerance) << "tensor " << i;
  }
}

struct BlockShape {
  int64_t batch, length, width, heads, inner;
};

void PrintTo(const BlockShape& shape, std::ostream* out) {
  *out << "B" << shape.batch << "T" << shape.length << "C" << shape.width << "H" << shape.heads << "I"
       << shape.inner;
}

class FusedBlock : public testing::TestWithParam<BlockShape> {};

TEST_P(FusedBlock, EqualsTheOperationsInDoubleAndSoDoItsGradients) {
  const auto [batch, length, width, heads, inner] = GetParam();
  Block block = make_block(width, heads, inner, 0);
  torch::manual_seed(1);
  const auto x = torch::randn({batch, length, width});
  const auto ours = run(block, x, false);
  block->to(torch::kDouble);
  expect_close(ours, run(block, x.to(torch::kDouble), true), 5e-6);
}

TEST_P(FusedBlock, DropsWhatTheOperationsDrop) {
  const auto [batch, length, width, heads, inner] = GetParam();
  Block block = make_block(width, heads, inner, 0.2);
  torch::manual_seed(1);
  const auto x = torch::randn({batch, length, width});
  expect_close(run(block, x, false), run(block, x, true), 1e-5);
  block->eval();
  expect_close(run(block, x, false), run(block, x, true), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FusedBlock,
                         testing::Values(BlockShape{1, 1, 16, 1, 16}, BlockShape{2, 3, 32, 4, 48},
                                         BlockShape{3, 17, 48, 3, 80}, BlockShape{2, 64, 64, 2, 256},
                                         BlockShape{5, 33, 16, 16, 112}),
                         testing::PrintToStringParamName());

TEST(FusedBlock, TakesWholeVectorsOfFloatsAndLeavesTheRestToOperations) {
  const auto fuses = [](int64_t width, int64_t inner, torch::ScalarType type) {
    BlockTensors weights;
    weights.fill(torch::zeros({width}, type));
    weights[kernels::kMlpInWeight] = torch::zeros({inner, width}, type);
    return can_fuse(torch::zeros({1, 2, width}, type), weights);
  };
  EXPECT_TRUE(fuses(32, 48, torch::kFloat));
  EXPECT_FALSE(fuses(30, 48, torch::kFloat));
  EXPECT_FALSE(fuses(32, 50, torch::kFloat));
  EXPECT_FALSE(fuses(32, 48, torch::kDouble));
  Block odd = make_block(12, 3, 20, 0);
  const auto x = torch::randn({2, 5, 12});
  expect_close(run(odd, x, false), run(odd, x, true), 1e-12);
}

TEST(FusedBlock, GivesTheSameBitsAgainWithAnyNumberOfThreads) {
  Block block = make_block(32, 2, 64, 0.1);
  const auto x = torch::randn({7, 9, 32});
  const int before = torch::get_num_threads();
  const auto one = run(block, x, false);
  for (const int threads : {1, 2, 3}) {
    torch::set_num_threads(threads);
    const auto first = run(block, x, false), again = run(block, x, false);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], again[i])) << i;
    expect_close(first, one, 1e-5);
  }
  torch::set_num_threads(before);
}

TEST(FusedBlock, RefusesAGradientOfItsGradient) {
  Block block = make_block(16, 1, 16, 0);
  const auto x = torch::randn({1, 4, 16}).requires_grad_();
  const auto sum = block->forward(x).sum();
  EXPECT_THAT([&] { torch::autograd::grad({sum}, {x}, {}, true, /*create_graph=*/true); },
              ThrowsMessage<UsageError>(HasSubstr("a gradient of its gradient")));
}

/// Every set of kernels that this CPU has.
std::vector<const kernels::Kernels*> sets() {
  std::vector<const kernels::Kernels*> all = {&kernels::portable_kernels()};
  for (const auto* set : {kernels::avx2_kernels(), kernels::avx512_kernels()}) {
    if (set != nullptr) all.push_back(set);
  }
  return all;
}

TEST(TransformerKernels, ProductsOfAnyRowsAreTheFormula) {
  for (const auto* set : sets()) {
    SCOPED_TRACE(set->name);
    for (const int64_t m : {1, 3, 4, 9}) {
      for (const int64_t n : {16, 48, 80}) {
        const int64_t k = m + n % 7;
        const auto a = torch::randn({m, k}), b = torch::randn({k, n}), bias = torch::randn({n});
        const auto expected = torch::matmul(a.to(torch::kDouble), b.to(torch::kDouble));
        auto c = torch::full({m, n}, 2.0F);
        const auto columns = a.t().contiguous();
        const kernels::Product product = {.m = m,
                                          .n = n,
                                          .k = k,
                                          .a = a.data_ptr<float>(),
                                          .a_row = k,
                                          .a_column = 1,
                                          .b = b.data_ptr<float>(),
                                          .b_row = n,
                                          .c = c.data_ptr<float>(),
                                          .c_row = n};
        set->product(product);
        EXPECT_LT(test::distance(c, expected), 1e-5);
        auto transposed = product;
        transposed.a = columns.data_ptr<float>(), transposed.a_row = 1, transposed.a_column = m;
        transposed.bias = bias.data_ptr<float>(), transposed.adds = true;
        set->product(transposed);
        EXPECT_LT(test::distance(c, 2 * expected + bias), 1e-5);
      }
    }
  }
}

TEST(TransformerKernels, GeluIsLibTorchsAndSoIsItsGradient) {
  const auto x = torch::cat(
      {torch::linspace(-12, 12, 4000), torch::tensor({0.0F, -0.0F, 1e30F, -1e30F}), torch::full({12}, 0.5F)});
  auto exact = x.to(torch::kDouble).requires_grad_();
  const auto expected = torch::gelu(exact);
  expected.sum().backward();
  for (const auto* set : sets()) {
    SCOPED_TRACE(set->name);
    auto forward = torch::empty_like(x), again = torch::empty_like(x), gradient = torch::ones_like(x);
    set->gelu_forward(x.numel(), x.data_ptr<float>(), forward.data_ptr<float>());
    set->gelu_backward(x.numel(), x.data_ptr<float>(), again.data_ptr<float>(), gradient.data_ptr<float>());
    const auto size = expected.detach().abs().clamp_min(1);
    EXPECT_LT(((forward - expected) / size).abs().max().item<double>(), 1e-6);
    EXPECT_TRUE(torch::equal(forward, again));
    EXPECT_LT(test::distance(gradient, exact.grad()), 2e-6);
  }
}

}  // namespace
}  // namespace lockstep::train
