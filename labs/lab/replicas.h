#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lab/checker.h"
#include "lab/nets.h"
#include "lab/world.h"

/// For checks of data parallel training: what one process would do, what the ranks did, and the difference by
/// name.
namespace lab {

/// Of the optimizer that checks give: plain SGD, so that the step tells the gradient.
constexpr double kLearningRate = 0.1;

/// Row i is sample i.
struct Samples {
  torch::Tensor input, target;
  torch::Tensor input_of(std::span<const int64_t> rows) const;
  torch::Tensor target_of(std::span<const int64_t> rows) const;
};
Samples make_samples(int64_t size, int64_t dim, uint64_t seed);

/// [step][rank]: the rows of a rank's share of a step's batch.
using Batches = std::vector<std::vector<std::vector<int64_t>>>;
/// Equal shares of a drawn order of `size` rows, as many steps as asked for.
Batches make_batches(const Checker& checker, int world, int steps, int64_t share, int64_t size);

/// For make_experts: every second sample is for the one expert.
Samples make_two_sided_samples(int64_t size, int64_t dim, uint64_t seed);
/// Shares of three of them, of which one rank's, the last one's first, are all for one expert: in a step of
/// several ranks the other expert has no gradient there.
Batches one_sided_batches(const Samples& samples, int world, int steps);

/// A value for each parameter, in unique_parameters' order.
using Values = std::vector<torch::Tensor>;
Values weights_of(const Net& net);
torch::optim::SGD make_optimizer(const Net& net);

/// A step as it should be.
struct TrueStep {
  double loss = 0;
  std::vector<double> losses;   ///< Of each rank's share.
  Values gradients;             ///< Of the whole batch; zeros where there is none.
  std::vector<Values> of_rank;  ///< Of each rank's share.
  Values weights;               ///< After it.
};

/// Trains `net` by itself on whole batches.
std::vector<TrueStep> train_alone(Net& net, const Samples& samples, const Batches& batches);

/// What a rank's weights were: at first, and after each step.
struct History {
  std::vector<std::vector<Values>> weights;  ///< [rank][step], one more than there are steps.
  std::vector<std::vector<double>> losses;   ///< [rank][step]
  explicit History(int world) : weights(static_cast<size_t>(world)), losses(static_cast<size_t>(world)) {}
};

/// Every rank made the steps of one process: `gradients not averaged`, `sum instead of mean`, `divided
/// twice`, `read too early`, `gradients not zeroed`, `weights do not move`, `wrong gradient`; and all have
/// the same bits: `replicas drift apart`.
void expect_parity(Checker& checker, const std::string& net_name, const Net& net, const History& history,
                   const std::vector<TrueStep>& truth);

/// The parameters that this rank moved, in the step, by the gradient of its own samples and not by the mean.
std::vector<std::string> left_behind(const Net& net, const History& history,
                                     const std::vector<TrueStep>& truth, int step, int rank);

/// An all-reduce, as one rank made it.
struct Reduction {
  int step = 0;
  std::string parameter;  ///< Whose gradient it was, by its memory; "" if it was elsewhere.
  int64_t count = 0;
  bool is_done = false;
  std::string text() const;
};

/// Watches the all-reduces in force, which go on working, for as long as it lives.
class ReductionLog {
 public:
  explicit ReductionLog(int world);
  ReductionLog(const ReductionLog&) = delete;
  ReductionLog& operator=(const ReductionLog&) = delete;
  ~ReductionLog();

  /// From here on this rank's all-reduces are of this step, of the gradients of `net`.
  void begin_step(int rank, int step, const std::shared_ptr<const Net>& net);
  std::vector<Reduction> of(int rank, int step) const;
  int64_t floats_of(int rank, int step) const;
  int64_t calls_of(int rank, int step) const { return static_cast<int64_t>(of(rank, step).size()); }
  int64_t done_of(int rank, int step) const;

  /// The first all-reduce of the run in which two ranks did not reduce the same: "" if there is none. Ranks
  /// that stopped early are no difference unless `counts`.
  std::string first_difference(bool counts) const;

 private:
  struct OfRank {
    int step = 0;
    std::shared_ptr<const Net> net = nullptr;  ///< Lives on for what is started and never waited for.
    std::vector<Reduction> all = {};
  };
  std::vector<OfRank> ranks_;
  std::function<void(Rank&, std::span<float>)> in_force_;
};

}  // namespace lab
