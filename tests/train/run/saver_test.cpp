#include "train/run/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "comms/run_ranks.h"
#include "lockstep/error.h"
#include "support/temporary_folder.h"
#include "train/run/optimizer.h"

namespace lockstep::train {
namespace {

using test::run_ranks;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Two weights, each the part of one rank: what a pipeline's stages have.
class Part : public Trainee {
 public:
  Part(int rank, double value) : rank_(rank) {
    weights_["weight" + std::to_string(rank)] = {torch::full({2, 3}, value + rank, torch::requires_grad())};
  }
  int data_rank() const override { return 0; }
  int data_ranks() const override { return 1; }
  std::optional<double> step(const Batch&, int64_t) override { return std::nullopt; }
  double clip(double) override { return 0; }
  std::optional<Evaluation> evaluate(const Batch&) override { return std::nullopt; }
  double exposed_ms() const override { return 0; }
  const Weights& weights() const override { return weights_; }
  int files() const override { return 2; }
  std::optional<int> own_file() const override { return rank_; }

  torch::Tensor weight() const { return weights_.begin()->second.tensor; }

 private:
  int rank_;
  Weights weights_;
};

/// One that cannot be saved.
class Broken : public Part {
 public:
  using Part::Part;
  std::optional<int> own_file() const override { throw Error("this rank's disk is gone"); }
};

class SaverTest : public testing::Test {
 protected:
  SaverTest() {
    run_.folder = folder_ / "run";
    run_.settings.keep = 2;
    std::filesystem::create_directories(run_.checkpoints());
    std::ofstream(run_.folder / "config.json") << "{}";
  }

  /// On both ranks: `act` with a saver, a part whose weights begin at `value`, and an optimizer.
  template <typename Act>
  std::vector<std::string> on_ranks(double value, const Act& act, const std::string& data = "d1") {
    return run_ranks(2, [&](Communicator& comm) {
      Saver saver(run_, comm, data);
      Part part(comm.rank(), value);
      const auto optimizer = make_optimizer(part.weights(), run_.settings);
      act(saver, part, *optimizer, comm.rank());
    });
  }
  std::vector<std::string> save(int64_t step, double value) {
    return on_ranks(value, [&](Saver& saver, Part& part, auto& optimizer, int) {
      part.weight().mutable_grad() = torch::ones({2, 3});
      for (int64_t done = 0; done < step; ++done) optimizer.step();
      saver.save(step, 1.5, part, optimizer);
    });
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(run_.checkpoints()))
      all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

  const test::TemporaryFolder folder_;
  train::Run run_;
};

TEST_F(SaverTest, PutsEveryRanksWeightsBack) {
  ASSERT_THAT(save(7, 10), Each(IsEmpty()));
  const auto thrown = on_ranks(0, [&](Saver& saver, Part& part, auto& optimizer, int rank) {
    const Restored found = saver.find();
    EXPECT_EQ(found.step, 7);
    EXPECT_THAT(found.notes, IsEmpty());
    EXPECT_THAT(found.differences, IsEmpty());
    saver.restore(part, optimizer);
    EXPECT_NEAR(part.weight()[0][0].template item<double>(), 10 + rank, 0.1);
    EXPECT_NE(part.weight()[0][0].template item<double>(), 10 + rank) << "a step was done";
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_F(SaverTest, NamesAWeightThatIsNotFinite) {
  ASSERT_THAT(save(7, std::nan("")), Each(IsEmpty()));
  const auto thrown = on_ranks(0, [&](Saver& saver, Part& part, auto& optimizer, int) {
    saver.find();
    saver.restore(part, optimizer);
  });
  EXPECT_THAT(thrown, Each(HasSubstr("step_00000007: weight")));
  EXPECT_THAT(thrown, Each(HasSubstr(" holds values that are not finite; hint: use an earlier checkpoint")));
}

TEST_F(SaverTest, FindsNothingWhereNothingWasSaved) {
  const auto thrown = on_ranks(0, [](Saver& saver, Part&, auto&, int) { EXPECT_EQ(saver.find().step, 0); });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_F(SaverTest, KeepsAsManyAsTheSettingsSay) {
  for (const int64_t step : {1, 2, 3}) ASSERT_THAT(save(step, 1), Each(IsEmpty()));
  EXPECT_THAT(names(), ElementsAre("LATEST", "step_00000002", "step_00000003"));
}

TEST_F(SaverTest, NamesWhatIsNotAsItWas) {
  ASSERT_THAT(save(4, 1), Each(IsEmpty()));
  const auto thrown = on_ranks(
      1,
      [](Saver& saver, Part&, auto&, int) {
        EXPECT_THAT(saver.find().differences, ElementsAre("data grammar of XXH3 d2, was grammar of XXH3 d1"));
      },
      "d2");
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_F(SaverTest, TakesTheOneBeforeATornOneAndSaysWhy) {
  ASSERT_THAT(save(1, 1), Each(IsEmpty()));
  ASSERT_THAT(save(2, 1), Each(IsEmpty()));
  const auto torn = run_.checkpoints() / "step_00000002/optimizer-00002-of-00002.safetensors";
  std::filesystem::resize_file(torn, std::filesystem::file_size(torn) - 1);
  const auto thrown = on_ranks(1, [](Saver& saver, Part&, auto&, int) {
    const Restored found = saver.find();
    EXPECT_EQ(found.step, 1);
    EXPECT_THAT(found.notes, Contains(HasSubstr("optimizer-00002-of-00002.safetensors")));
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_F(SaverTest, AFailureOfOneRankIsAnErrorOfAllAndLeavesTheCheckpointBefore) {
  ASSERT_THAT(save(1, 1), Each(IsEmpty()));
  const auto thrown = on_ranks(1, [&](Saver& saver, Part& part, auto& optimizer, int rank) {
    part.weight().mutable_grad() = torch::ones({2, 3});
    optimizer.step();
    const Broken broken(rank, 1);
    saver.save(2, 1.5, rank == 1 ? static_cast<const Trainee&>(broken) : part, optimizer);
  });
  EXPECT_THAT(thrown, Each(HasSubstr("rank 1: this rank's disk is gone")));
  EXPECT_THAT(names(), ElementsAre("LATEST", "step_00000001"));
}

}  // namespace
}  // namespace lockstep::train
