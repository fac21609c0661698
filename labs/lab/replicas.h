#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lab/checker.h"
#include "lab/nets.h"
#include "lab/tensor_data.h"
#include "lab/world.h"

/// For checks of data parallel training: what one process would do, what the ranks did, and the difference by
/// name.
namespace lab {

/// Of the optimizer that checks give: SGD.
struct Rates {
  double learning_rate = 0.1;
  double momentum = 0;
};

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
/// Shares of `share` of them, of which one rank's, the last one's first, are all for one expert: in a step of
/// several ranks the other expert has no gradient there.
Batches one_sided_batches(const Samples& samples, int world, int steps, int64_t share = 3);

/// A value for each parameter, in unique_parameters' order.
using Values = std::vector<torch::Tensor>;
Values weights_of(const Net& net);
/// Undefined ones stay undefined.
Values gradients_of(const Net& net);
torch::optim::SGD make_optimizer(const Net& net, const Rates& rates = {});

/// A step as it should be.
struct TrueStep {
  double loss = 0;
  std::vector<double> losses;   ///< Of each rank's share.
  Values gradients;             ///< Of the whole batch; zeros where there is none.
  std::vector<Values> of_rank;  ///< Of each rank's share.
  Values moves;                 ///< What is subtracted from the weights.
};

/// What the ranks did in each step. A struct of data, so that a child process can hand it back.
struct History {
  std::vector<std::vector<Values>> weights;    ///< [rank][step], one more than there are steps.
  std::vector<std::vector<Values>> gradients;  ///< [rank][step], as optimizer.step() found them.
  std::vector<std::vector<int>> updates;       ///< [rank][step]: calls of optimizer.step().
  std::vector<std::vector<int64_t>> reduced;   ///< [rank][step]: all-reduces of the step that were over then.
  std::vector<std::vector<double>> losses;     ///< [rank][step], as returned.
  std::string damage;                          ///< Who changed an input or what is beside it; or "".

  static History make(int world);
};

/// Trains `net` by itself on whole batches. With `found` every step but the first starts from the weights
/// that rank 0 had there, so that rounding does not add up over many steps.
std::vector<TrueStep> train_alone(Net& net, const Samples& samples, const Batches& batches,
                                  const Rates& rates = {}, const History* found = nullptr);

/// Every rank made the steps of one process, and all have the same bits. Fails by the name of the mistake
/// that explains what a rank did, such as `sum instead of mean`; `wrong gradient` if none does.
void expect_parity(Checker& checker, const std::string& net_name, const Net& net, const History& history,
                   const std::vector<TrueStep>& truth);
/// Every rank returned the loss of its own samples.
void expect_losses(Checker& checker, const std::string& net_name, const History& history,
                   const std::vector<TrueStep>& truth);

/// The parameters whose gradient on this rank, in the step, was that of its own samples and not the mean.
std::vector<std::string> left_behind(const Net& net, const History& history,
                                     const std::vector<TrueStep>& truth, int step, int rank);

/// An all-reduce, as one rank made it.
struct Reduction {
  int step = 0;
  std::string parameter;  ///< Whose gradient it was, by its memory; "" if it was elsewhere.
  int64_t count = 0;
  bool is_weight = false;  ///< It was a parameter itself, not its gradient.
  bool is_done = false;
  std::string text() const;
};

/// All-reduces of a run. A struct of data, so that a child process can hand it back.
struct Reductions {
  std::vector<std::vector<Reduction>> ranks;  ///< [rank], in the order of the calls.

  std::vector<Reduction> of(int rank, int step) const;
  int64_t floats_of(int rank, int step) const;
  int64_t calls_of(int rank, int step) const { return static_cast<int64_t>(of(rank, step).size()); }
  int64_t done_of(int rank, int step) const;
  /// The first all-reduce of the run in which two ranks did not reduce the same: "" if there is none. Ranks
  /// that stopped early are no difference unless `counts`.
  std::string first_difference(bool counts) const;
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
  const Reductions& all() const { return all_; }

 private:
  struct OfRank {
    int step = -1;                             ///< Before the first.
    std::shared_ptr<const Net> net = nullptr;  ///< Lives on for what is started and never waited for.
  };
  std::vector<OfRank> ranks_;
  Reductions all_;
  std::function<void(Rank&, std::span<float>)> in_force_;
};

/// A training that ranks share.
struct Job {
  std::string net_name;
  std::function<std::shared_ptr<Net>(int rank)> make;  ///< Each rank's own.
  int world = 1;
  Samples samples;
  Batches batches;
  Rates rates;
  bool resets = false;  ///< All gradients are undefined before each step, not only before the first.
};

/// What a run of it left: data that a child process can hand back.
struct Training {
  History history;
  Reductions reductions;
  Report report;
};

/// A learner's step on a rank: returns its loss.
using Step = std::function<double(torch::optim::Optimizer& optimizer, const torch::Tensor& input,
                                  const torch::Tensor& target)>;
/// Runs the job in this process, which should be a child: `begin` is called once on each rank, and what it
/// returns for each step. Backward of a layer takes `layer_us` of the rank's time. Never fails; see
/// Training::report.
Training train_ranks(const Checker& checker, const Job& job,
                     const std::function<Step(Rank& rank, Net& net)>& begin, double layer_us = 0);

/// Bytes that stay allocated with each step of a training on one rank, in this process, which should be a
/// child; the average of many steps.
double bytes_kept(const std::function<Step(Rank& rank, Net& net)>& begin);

}  // namespace lab
