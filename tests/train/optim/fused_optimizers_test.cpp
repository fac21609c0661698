#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/error.h"
#include "lockstep/train/optim/fused_adam.h"
#include "lockstep/train/optim/fused_sgd.h"
#include "lockstep/train/optim/repeated_parameters.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

/// Of several shapes, one without elements; the same for the same seed.
Tensors make_parameters(int64_t seed, torch::ScalarType type = torch::kFloat) {
  torch::manual_seed(seed);
  Tensors parameters;
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{7, 5}, {1}, {0, 3}, {40, 33}, {}, {2, 3, 4, 5}}) {
    parameters.push_back(torch::randn(shape, torch::kDouble).to(type).requires_grad_());
  }
  return parameters;
}

void set_gradients(const Tensors& parameters, int64_t step) {
  torch::manual_seed(1000 + step);
  for (const auto& parameter : parameters) {
    // The sizes of gradients differ from parameter to parameter and from step to step.
    const auto size = torch::rand({}, torch::kDouble).item<double>() * 3;
    parameter.mutable_grad() =
        torch::randn(parameter.sizes(), torch::kDouble).mul(size).to(parameter.scalar_type());
  }
}

/// Within `ulps` units in the last place of the larger of |value| and `scale`.
void expect_close(const torch::Tensor& ours, const torch::Tensor& theirs, double ulps, double scale,
                  const std::string& what) {
  const double epsilon = theirs.scalar_type() == torch::kDouble ? 2.3e-16 : 1.2e-7;
  const auto bound = theirs.detach().to(torch::kDouble).abs().clamp_min(scale) * (ulps * epsilon);
  const auto excess = (ours.detach().to(torch::kDouble) - theirs.detach().to(torch::kDouble)).abs() - bound;
  EXPECT_EQ(ours.sizes(), theirs.sizes()) << what;
  if (excess.numel() > 0) {
    EXPECT_LE(excess.max().item<double>(), 0) << what;
  }
}

template <typename Theirs>
struct Traits;
template <>
struct Traits<torch::optim::Adam> {
  using Ours = FusedAdam;
  using Options = torch::optim::AdamOptions;
  using State = torch::optim::AdamParamState;
  static std::vector<Options> variants() {
    using O = Options;
    return {O(1e-3),
            O(0.1).betas({0.5, 0.7}).eps(1e-3),
            O(0.01).weight_decay(0.1),
            O(0.01).amsgrad(true),
            O(0.01).amsgrad(true).weight_decay(0.3),
            O(0)};
  }
};
template <>
struct Traits<torch::optim::AdamW> {
  using Ours = FusedAdamW;
  using Options = torch::optim::AdamWOptions;
  using State = torch::optim::AdamWParamState;
  static std::vector<Options> variants() {
    using O = Options;
    return {O(1e-3), O(0.01).weight_decay(0), O(0.1).weight_decay(0.5).amsgrad(true)};
  }
};
template <>
struct Traits<torch::optim::SGD> {
  using Ours = FusedSGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static std::vector<Options> variants() {
    using O = Options;
    return {O(0.1),
            O(0.1).weight_decay(0.01),
            O(0.1).momentum(0.9),
            O(0.1).momentum(0.9).dampening(0.3),
            O(0.1).momentum(0.9).nesterov(true),
            O(0.05).momentum(0.5).weight_decay(0.2).nesterov(true)};
  }
};

template <typename Theirs>
class FusedOptimizer : public testing::Test {
 protected:
  using Ours = typename Traits<Theirs>::Ours;
  using Options = typename Traits<Theirs>::Options;

  static Options usual() { return Traits<Theirs>::variants().back().lr(0.01); }

  /// Some steps of an optimizer, gradients of steps [from, to).
  template <typename Optimizer>
  static void run(Optimizer& optimizer, const Tensors& parameters, int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      set_gradients(parameters, step);
      optimizer.step();
    }
  }

  static void expect_all_close(const Tensors& ours, const Tensors& theirs, double ulps) {
    for (size_t i = 0; i < ours.size(); ++i)
      expect_close(ours[i], theirs[i], ulps, 1, "parameter " + std::to_string(i));
  }

  static void expect_equal(const Tensors& left, const Tensors& right) {
    for (size_t i = 0; i < left.size(); ++i)
      EXPECT_TRUE(torch::equal(left[i], right[i])) << "parameter " << i;
  }
};

using Optimizers = testing::Types<torch::optim::Adam, torch::optim::AdamW, torch::optim::SGD>;
TYPED_TEST_SUITE(FusedOptimizer, Optimizers);

TYPED_TEST(FusedOptimizer, StepsAsLibTorchsDoes) {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    for (const auto& options : Traits<TypeParam>::variants()) {
      const auto ours = make_parameters(1, type);
      const auto theirs = make_parameters(1, type);
      typename TestFixture::Ours fused(ours, options);
      TypeParam stock(theirs, options);
      for (int64_t step = 0; step < 50; ++step) {
        this->run(fused, ours, step, step + 1);
        this->run(stock, theirs, step, step + 1);
        this->expect_all_close(ours, theirs, 4.0 * static_cast<double>(step + 1));
      }
    }
  }
}

TYPED_TEST(FusedOptimizer, GivesTheSameBitsForEveryNumberOfThreads) {
  const int threads = torch::get_num_threads();
  std::vector<Tensors> results;
  for (const int count : {1, 2, 3}) {
    torch::set_num_threads(count);
    torch::manual_seed(4);
    Tensors parameters;
    for (const int64_t size : {100, 200'001, 3, 70'000})
      parameters.push_back(torch::randn({size}).requires_grad_());
    typename TestFixture::Ours fused(parameters, this->usual());
    this->run(fused, parameters, 0, 3);
    results.push_back(parameters);
  }
  torch::set_num_threads(threads);
  this->expect_equal(results[0], results[1]);
  this->expect_equal(results[0], results[2]);
}

TYPED_TEST(FusedOptimizer, LoadsWhatLibTorchsSaved) {
  const auto theirs = make_parameters(2);
  TypeParam stock(theirs, this->usual());
  this->run(stock, theirs, 0, 5);
  std::stringstream file;
  torch::save(stock, file);
  Tensors ours;
  for (const auto& parameter : theirs) ours.push_back(parameter.detach().clone().requires_grad_());
  typename TestFixture::Ours fused(ours, this->usual());
  torch::load(fused, file);
  this->run(fused, ours, 5, 8);
  this->run(stock, theirs, 5, 8);
  this->expect_all_close(ours, theirs, 12);
}

TYPED_TEST(FusedOptimizer, SavesWhatLibTorchsLoads) {
  const auto ours = make_parameters(2);
  typename TestFixture::Ours fused(ours, this->usual());
  this->run(fused, ours, 0, 5);
  std::stringstream file;
  torch::save(fused, file);
  Tensors theirs;
  for (const auto& parameter : ours) theirs.push_back(parameter.detach().clone().requires_grad_());
  TypeParam stock(theirs, this->usual());
  torch::load(stock, file);
  this->run(fused, ours, 5, 8);
  this->run(stock, theirs, 5, 8);
  this->expect_all_close(ours, theirs, 12);
}

TYPED_TEST(FusedOptimizer, TakesOptionsOfEachGroup) {
  const auto ours = make_parameters(3);
  const auto theirs = make_parameters(3);
  const auto grouped = [&](const Tensors& all) {
    auto other = std::make_unique<typename TestFixture::Options>(this->usual().lr(0.5));
    return std::vector<torch::optim::OptimizerParamGroup>{
        torch::optim::OptimizerParamGroup({all[0], all[1], all[2]}),
        torch::optim::OptimizerParamGroup({all[3], all[4], all[5]}, std::move(other))};
  };
  typename TestFixture::Ours fused(grouped(ours), this->usual());
  TypeParam stock(grouped(theirs), this->usual());
  this->run(fused, ours, 0, 4);
  this->run(stock, theirs, 0, 4);
  this->expect_all_close(ours, theirs, 16);
}

TYPED_TEST(FusedOptimizer, StepsAParameterGivenTwiceOnce) {
  const auto once = make_parameters(4);
  const auto twice = make_parameters(4);
  typename TestFixture::Ours single(once, this->usual());
  auto given = twice;
  given.insert(given.end(), twice.begin(), twice.end());
  typename TestFixture::Ours doubled(given, this->usual());
  this->run(single, once, 0, 3);
  this->run(doubled, twice, 0, 3);
  this->expect_equal(once, twice);
}

TYPED_TEST(FusedOptimizer, KeepsTheStateOfAParameterGivenTwiceThroughACheckpoint) {
  const auto parameters = make_parameters(4);
  auto given = parameters;
  given.insert(given.end(), parameters.begin(), parameters.end());
  typename TestFixture::Ours fused(given, this->usual());
  this->run(fused, parameters, 0, 3);
  std::stringstream file;
  torch::save(fused, file);
  Tensors copies;
  for (const auto& parameter : parameters) copies.push_back(parameter.detach().clone().requires_grad_());
  auto copies_given = copies;
  copies_given.insert(copies_given.end(), copies.begin(), copies.end());
  typename TestFixture::Ours resumed(copies_given, this->usual());
  torch::load(resumed, file);
  EXPECT_EQ(resumed.state().size(), fused.state().size());
  EXPECT_EQ(resumed.param_groups()[0].params().size(), copies_given.size());
  this->run(fused, parameters, 3, 6);
  this->run(resumed, copies, 3, 6);
  this->expect_equal(parameters, copies);
}

TYPED_TEST(FusedOptimizer, LetsAutogradNoticeAChangedWeight) {
  // The second parameter takes LibTorch's step, as its gradient is laid out otherwise.
  const auto weight = torch::randn({3, 4}).requires_grad_();
  const auto other = torch::randn({3, 4}).requires_grad_();
  typename TestFixture::Ours fused(Tensors{weight, other}, this->usual());
  for (const auto& parameter : {weight, other}) {
    const auto input = torch::randn({3, 4}).requires_grad_();
    const auto loss = (input * parameter).sum();
    weight.mutable_grad() = torch::ones({3, 4});
    other.mutable_grad() = torch::ones({4, 3}).t();
    fused.step();
    EXPECT_THROW(loss.backward(), c10::Error);
  }
}

TYPED_TEST(FusedOptimizer, LeavesParametersWithoutGradientAlone) {
  const auto parameters = make_parameters(6);
  const auto before = make_parameters(6);
  typename TestFixture::Ours fused(parameters, this->usual());
  parameters[3].mutable_grad() = torch::ones_like(parameters[3]);
  fused.step();
  EXPECT_FALSE(torch::equal(parameters[3], before[3]));
  for (const size_t i : {0, 1, 2, 4, 5}) EXPECT_TRUE(torch::equal(parameters[i], before[i]));
  EXPECT_LE(fused.state().size(), 1U);
}

TYPED_TEST(FusedOptimizer, TakesEveryTypeAndLayoutThatLibTorchsTakes) {
  const auto make = [] {
    torch::manual_seed(7);
    Tensors all = {torch::randn({4, 6}).to(torch::kBFloat16),
                   torch::randn({6, 4}).t(),
                   torch::randn({2, 3, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast),
                   torch::randn({8, 4}).slice(1, 0, 2),
                   torch::randn({5, 5}),
                   torch::randn({5, 5})};
    for (auto& parameter : all) parameter.requires_grad_();
    return all;
  };
  const auto run = [](auto& optimizer, const Tensors& all) {
    for (int64_t step = 0; step < 4; ++step) {
      torch::manual_seed(step);
      for (const auto& parameter : all) parameter.mutable_grad() = torch::randn_like(parameter);
      all[4].mutable_grad() = torch::randn({5, 5}).t();             // another order in memory
      all[5].mutable_grad() = torch::randn({5, 1}).expand({5, 5});  // many elements in one place
      optimizer.step();
    }
  };
  const auto ours = make();
  const auto theirs = make();
  typename TestFixture::Ours fused(ours, this->usual());
  TypeParam stock(theirs, this->usual());
  run(fused, ours);
  run(stock, theirs);
  EXPECT_TRUE(torch::equal(ours[0], theirs[0])) << "bfloat16 takes LibTorch's own step";
  this->expect_all_close({ours.begin() + 1, ours.end()}, {theirs.begin() + 1, theirs.end()}, 16);
}

TYPED_TEST(FusedOptimizer, RefusesASparseGradientByPlaceAndChangesNothing) {
  const auto parameters = make_parameters(8);
  const auto before = make_parameters(8);
  typename TestFixture::Ours fused(parameters, this->usual());
  set_gradients(parameters, 0);
  parameters[3].mutable_grad() = torch::zeros({40, 33}).to_sparse();
  try {
    fused.step();
    FAIL() << "a sparse gradient was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("parameter 3 of group 0, of shape [40, 33], is not dense"));
  }
  this->expect_equal(parameters, before);
}

TYPED_TEST(FusedOptimizer, EvaluatesTheClosureWithGradientsAndReturnsItsLoss) {
  const auto weight = torch::ones({3}).requires_grad_();
  typename TestFixture::Ours fused(Tensors{weight}, this->usual());
  const torch::NoGradGuard no_grad;
  const auto loss = fused.step([&] {
    fused.zero_grad();
    auto sum = (weight * 2).sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.template item<float>(), 6);
  EXPECT_FALSE(torch::equal(weight, torch::ones({3})));
  EXPECT_FALSE(torch::GradMode::is_enabled());
}

TYPED_TEST(FusedOptimizer, ZeroGradLetsGoOfGradientsOrFillsThem) {
  const auto parameters = make_parameters(9);
  typename TestFixture::Ours fused(parameters, this->usual());
  set_gradients(parameters, 0);
  const auto* const memory = parameters[0].grad().data_ptr();
  fused.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(parameters[0].grad().data_ptr(), memory);
  EXPECT_EQ(parameters[0].grad().abs().sum().template item<float>(), 0);
  fused.zero_grad();
  for (const auto& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
}

TYPED_TEST(FusedOptimizer, CarriesNaNIntoTheParameter) {
  const auto weight = torch::ones({20}).requires_grad_();
  typename TestFixture::Ours fused(Tensors{weight}, this->usual());
  weight.mutable_grad() = torch::ones({20});
  weight.grad()[13] = std::nan("");
  fused.step();
  EXPECT_EQ(weight.isnan().sum().template item<int64_t>(), 1);
  EXPECT_TRUE(weight[13].isnan().template item<bool>());
}

/// Optimizers with amsgrad, whose state has for its last parameter no maximum, or one in another order in
/// memory, of another type or shape: as a checkpoint of another program may have it.
TYPED_TEST(FusedOptimizer, TakesAnOddMaximumOfAmsgradAsLibTorchsDoes) {
  if constexpr (!std::is_same_v<TypeParam, torch::optim::SGD>) {
    using State = typename Traits<TypeParam>::State;
    const std::vector<std::pair<const char*, std::function<torch::Tensor(const torch::Tensor&)>>> odd = {
        {"none", [](const auto&) { return torch::Tensor(); }},
        {"another order in memory", [](const auto& usual) { return usual.t().contiguous().t(); }},
        {"another type", [](const auto& usual) { return usual.to(torch::kDouble); }},
        {"another shape", [](const auto& usual) { return usual.narrow(0, 0, 1).contiguous(); }},
        {"too many elements", [](const auto& usual) {
           return torch::cat({usual, usual});
         }}};
    for (const auto& [name, change] : odd) {
      SCOPED_TRACE(name);
      const auto run = [&, change = change](auto make, Tensors& parameters) {
        parameters = {make_parameters(1)[3]};
        auto optimizer = make(parameters);
        this->run(optimizer, parameters, 0, 3);
        auto& state = static_cast<State&>(*optimizer.state().begin()->second);
        state.max_exp_avg_sq(change(state.max_exp_avg_sq()));
        try {
          this->run(optimizer, parameters, 3, 6);
        } catch (const std::exception&) {
          return false;
        }
        return true;
      };
      const auto options = this->usual().amsgrad(true);
      Tensors ours, theirs;
      const bool takes = run([&](const auto& all) { return typename TestFixture::Ours(all, options); }, ours);
      EXPECT_EQ(takes, run([&](const auto& all) { return TypeParam(all, options); }, theirs));
      if (takes) this->expect_all_close(ours, theirs, 64);
    }
  }
}

TEST(FusedAdam, CountsStepsAsLibTorchDoes) {
  const auto weight = torch::ones({2}).requires_grad_();
  FusedAdam fused(Tensors{weight}, 0.1);
  for (int step = 0; step < 3; ++step) {
    weight.mutable_grad() = torch::ones({2});
    fused.step();
  }
  ASSERT_EQ(fused.state().size(), 1U);
  EXPECT_EQ(static_cast<const torch::optim::AdamParamState&>(*fused.state().begin()->second).step(), 3);
}

TEST(RefuseRepeatedParameters, NamesBothPlaces) {
  const auto one = torch::ones({2, 3}).requires_grad_();
  const auto two = torch::ones({4}).requires_grad_();
  torch::optim::SGD optimizer(Tensors{two, one}, 0.1);
  EXPECT_NO_THROW(refuse_repeated_parameters(optimizer));
  optimizer.add_param_group(torch::optim::OptimizerParamGroup(Tensors{one}));
  try {
    refuse_repeated_parameters(optimizer);
    FAIL() << "a parameter given twice was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("parameter 0 of group 1 is parameter 1 of group 0 again"));
    EXPECT_THAT(error.what(), testing::HasSubstr("[2, 3]"));
  }
}

}  // namespace
}  // namespace lockstep
