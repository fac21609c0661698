// The fit on made-up measurements, where the right answer is known.
#include "lockstep/plan/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"
#include "plan/least_squares.h"

namespace lockstep::plan {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Network network_of(double latency_s, double s_per_byte, double reduce_s_per_byte) {
  return {.between = {.latency_s = latency_s, .s_per_byte = s_per_byte},
          .reduce_s_per_byte = reduce_s_per_byte};
}

/// All-reduces of 16 bytes to 16 MiB by every plan of messages, timed by the simulator on `network`.
std::vector<Measurement> simulated(int world, const Network& network, int64_t from = 16,
                                   int64_t to = 16 << 20) {
  std::vector<Measurement> measurements;
  for (const char* algorithm : {"naive", "all-to-all", "ring", "tree", "direct", "halving-doubling"}) {
    const Plan plan = make_plan(Collective::kAllReduce, algorithm, {.world = world});
    for (int64_t bytes = from; bytes <= to; bytes *= 4) {
      measurements.push_back({.form = "messages",
                              .terms = cost_terms(plan, bytes / 4),
                              .time_s = simulate(plan, network, bytes / 4).time_s});
    }
  }
  return measurements;
}

TEST(CostTerms, AddUpToTheSimulatedTimeOfEveryAllReduce) {
  const Network network = network_of(3e-6, 2e-10, 5e-11);
  for (const int world : {1, 2, 3, 4, 5, 7, 8, 16}) {
    for (const auto& algorithm : algorithms_of(Collective::kAllReduce)) {
      if (algorithm.name == "hierarchical") continue;  // it takes a network of two levels
      const Plan plan = algorithm.make({.world = world});
      const double time_s = simulate(plan, network, 720'720).time_s;
      EXPECT_NEAR(cost_terms(plan, 720'720).time_s(network), time_s, 1e-9 * time_s)
          << algorithm.name << " on " << world;
    }
  }
}

TEST(Fit, FindsTheParametersOfASimulatedNetwork) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-1, 1);
  for (int trial = 0; trial < 20; ++trial) {
    const Network network =
        network_of(5e-6 * std::pow(10, exponent(random)), 2e-10 * std::pow(10, exponent(random)),
                   5e-11 * std::pow(10, exponent(random)));
    const Model model = fit(simulated(2 + trial % 7, network));
    ASSERT_EQ(model.forms.at("messages").size(), 1U);
    const Network& found = model.forms.at("messages")[0].network;
    EXPECT_NEAR(found.between.latency_s / network.between.latency_s, 1, 1e-6);
    EXPECT_NEAR(found.between.s_per_byte / network.between.s_per_byte, 1, 1e-6);
    EXPECT_NEAR(found.reduce_s_per_byte / network.reduce_s_per_byte, 1, 1e-6);
  }
}

TEST(Fit, FindsThemThroughNoise) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  const Network network = network_of(5e-6, 2e-10, 3e-10);
  for (int trial = 0; trial < 20; ++trial) {
    auto measurements = simulated(4, network);
    for (auto& measurement : measurements) measurement.time_s *= noise(random);
    const Network found = fit(measurements).forms.at("messages").front().network;
    EXPECT_NEAR(found.between.latency_s / network.between.latency_s, 1, 0.1);
    EXPECT_NEAR(found.between.s_per_byte / network.between.s_per_byte, 1, 0.3);
    EXPECT_NEAR(found.reduce_s_per_byte / network.reduce_s_per_byte, 1, 0.6);
  }
}

TEST(Fit, FindsTheMessageAtWhichTheParametersChange) {
  const Network eager = network_of(1e-6, 1e-10, 2e-11);
  const Network rendezvous = network_of(3e-6, 8e-10, 2e-11);
  auto measurements = simulated(4, eager);
  const auto slow = simulated(4, rendezvous);
  for (size_t i = 0; i < slow.size(); ++i) {
    if (slow[i].terms.message_bytes() > 5000) measurements[i] = slow[i];
  }
  const auto regimes = fit(measurements).forms.at("messages");
  ASSERT_EQ(regimes.size(), 2U);
  EXPECT_DOUBLE_EQ(regimes[0].up_to_bytes, std::sqrt(4096.0 * 6144))
      << "half way, by ratio, between what was measured";
  EXPECT_NEAR(regimes[0].network.between.s_per_byte, 1e-10, 1e-16);
  EXPECT_NEAR(regimes[1].network.between.s_per_byte, 8e-10, 1e-16);
}

TEST(Fit, KeepsFormsApart) {
  Model model = fit({{"shm push", {.rounds = 2}, 2e-6}, {"gloo messages", {.rounds = 2}, 2e-4}});
  EXPECT_NEAR(*model.time_s("shm push", {.rounds = 1}), 1e-6, 1e-15);
  EXPECT_NEAR(*model.time_s("gloo messages", {.rounds = 1}), 1e-4, 1e-13);
  EXPECT_EQ(model.time_s("mpi messages", {.rounds = 1}), std::nullopt);
}

TEST(Fit, RefusesATimeThatIsNone) {
  for (const double time_s :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(fit({{"form", {.rounds = 1}, time_s}}), UsageError) << time_s;
  }
  EXPECT_TRUE(fit({}).forms.empty());
}

TEST(Model, SurvivesJson) {
  const Model model = fit(simulated(4, network_of(5e-6, 2e-10, 3e-10)));
  const Model read = model_from_json(to_json(model));
  const CostTerms terms = {.rounds = 3, .bytes = 1e6, .reduced_bytes = 2e5};
  EXPECT_EQ(read.time_s("messages", terms), model.time_s("messages", terms));
  EXPECT_EQ(to_json(read), to_json(model));
}

TEST(Model, RefusesOtherJson) {
  const auto reading = [](const char* text) { return [text] { model_from_json(text); }; };
  EXPECT_THAT(reading("[]"), ThrowsMessage<UsageError>(HasSubstr("/: is no object")));
  EXPECT_THAT(reading(R"({"ring": []})"), ThrowsMessage<UsageError>(HasSubstr("/ring: no list of regimes")));
  EXPECT_THAT(reading(R"({"ring": [7]})"), ThrowsMessage<UsageError>(HasSubstr("/ring/0: is no object")));
  EXPECT_THAT(reading(R"({"ring": [{"up_to_bytes": 4}]})"),
              ThrowsMessage<UsageError>(HasSubstr("/ring/0/latency_s: is missing")));
  EXPECT_THAT(reading(R"({"ring": [{"up_to_bytes": 4, "latency_s": -1}]})"),
              ThrowsMessage<UsageError>(HasSubstr("/ring/0/latency_s: -1; hint: a number, not negative")));
}

/// The least squared error on a grid of unknowns, none of them negative.
double least_on_grid(const std::vector<Equation>& equations) {
  constexpr int kSteps = 40;
  constexpr double kMost = 4;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kSteps; ++i) {
    for (int j = 0; j <= kSteps; ++j) {
      for (int k = 0; k <= kSteps; ++k) {
        least = std::min(
            least, squared_error(equations, {i * kMost / kSteps, j * kMost / kSteps, k * kMost / kSteps}));
      }
    }
  }
  return least;
}

TEST(NonNegativeLeastSquares, LeavesNoMoreThanAnyPointOfAGrid) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> factor(0, 1), value(-1, 3);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Equation> equations;
    for (int i = 0; i < 1 + trial % 6; ++i)
      equations.push_back({{factor(random), factor(random), factor(random)}, value(random)});
    const auto found = non_negative_least_squares(equations);
    EXPECT_THAT(found, testing::Each(testing::Ge(0)));
    EXPECT_LE(squared_error(equations, found), least_on_grid(equations) + 1e-12);
  }
}

TEST(NonNegativeLeastSquares, CannotBeImprovedByMovingOneUnknown) {
  std::mt19937 random(4);
  std::uniform_real_distribution<double> factor(0, 1), value(-1, 3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Equation> equations;
    for (int i = 0; i < 4; ++i)
      equations.push_back({{factor(random), 1e9 * factor(random), 1e6 * factor(random)}, value(random)});
    const auto found = non_negative_least_squares(equations);
    const double least = squared_error(equations, found);
    for (size_t unknown = 0; unknown < 3; ++unknown) {
      for (const double step : {-1e-3, 1e-3}) {
        auto moved = found;
        moved[unknown] = std::max(0.0, moved[unknown] * (1 + step) + step * 1e-12);
        EXPECT_GE(squared_error(equations, moved), least * (1 - 1e-9));
      }
    }
  }
}

TEST(NonNegativeLeastSquares, GivesWhatCannotBeToldApartToTheFirst) {
  const std::vector<Equation> equations = {{{0, 1, 2}, 4}, {{0, 2, 4}, 8}};
  EXPECT_THAT(non_negative_least_squares(equations), testing::ElementsAre(0, 4, 0));
}

}  // namespace
}  // namespace lockstep::plan
