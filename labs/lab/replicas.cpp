#include "lab/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lab/collectives.h"

namespace lab {

namespace {

torch::Tensor rows_of(const torch::Tensor& from, std::span<const int64_t> rows) {
  return from.index_select(0, torch::tensor(std::vector<int64_t>(rows.begin(), rows.end()), torch::kLong));
}

double largest(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

bool is_close(const torch::Tensor& found, const torch::Tensor& expected) {
  return largest(found - expected) <= 1e-5 + 1e-3 * largest(expected);
}

/// The gradients of a batch's loss, and the loss.
double gradients_of(Net& net, const torch::Tensor& input, const torch::Tensor& target, Values& gradients) {
  const auto parameters = unique_parameters(net);
  for (const auto& parameter : parameters) parameter.tensor.mutable_grad().reset();
  const auto loss = torch::mse_loss(net.forward(input), target);
  loss.backward();
  for (const auto& parameter : parameters) {
    const auto& gradient = parameter.tensor.grad();
    gradients.push_back(gradient.defined() ? gradient.clone() : torch::zeros_like(parameter.tensor));
  }
  return loss.item<double>();
}

/// What the step of a wrong gradient was made of.
struct Wrong {
  const char* name;
  torch::Tensor made_of;
  std::string what, meaning;
};

}  // namespace

torch::Tensor Samples::input_of(std::span<const int64_t> rows) const {
  return rows_of(input, rows);
}
torch::Tensor Samples::target_of(std::span<const int64_t> rows) const {
  return rows_of(target, rows);
}

Samples make_samples(int64_t size, int64_t dim, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  const auto input = torch::randn({size, dim}, generator);
  return {input, input.roll(1, 1) + torch::randn({size, dim}, generator)};
}

Batches make_batches(const Checker& checker, int world, int steps, int64_t share, int64_t size) {
  Batches batches;
  for (int step = 0; step < steps; ++step) {
    std::vector<int64_t> order(static_cast<size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[checker.draw(static_cast<uint64_t>(step) * 10000 + i) % i]);
    }
    auto& ranks = batches.emplace_back();
    for (int r = 0; r < world; ++r) {
      const auto begin = order.begin() + r * share;
      ranks.emplace_back(begin, begin + share);
    }
  }
  return batches;
}

Samples make_two_sided_samples(int64_t size, int64_t dim, uint64_t seed) {
  const auto samples = make_samples(size, dim, seed);
  const auto side = torch::arange(size).remainder(2).mul(2).sub(1);
  samples.input.select(1, 0).abs_().add_(0.1).mul_(side);
  return samples;
}

Batches one_sided_batches(const Samples& samples, int world, int steps) {
  std::vector<int64_t> left, right;
  for (int64_t i = 0; i < samples.input.size(0); ++i) (i % 2 == 1 ? right : left).push_back(i);
  Batches batches;
  for (int s = 0; s < steps; ++s) {
    auto& step = batches.emplace_back();
    for (int r = 0; r < world; ++r) {
      const auto k = static_cast<size_t>(s * world + r);
      const bool is_one_sided = world > 1 && r == (world - 1 + s) % world;
      step.push_back({right[k % right.size()], right[(k + 1) % right.size()],
                      is_one_sided ? right[(k + 2) % right.size()] : left[k % left.size()]});
    }
  }
  return batches;
}

Values weights_of(const Net& net) {
  Values weights;
  for (const auto& parameter : unique_parameters(net)) weights.push_back(parameter.tensor.detach().clone());
  return weights;
}

torch::optim::SGD make_optimizer(const Net& net) {
  std::vector<torch::Tensor> tensors;
  for (const auto& parameter : unique_parameters(net)) tensors.push_back(parameter.tensor);
  return torch::optim::SGD(tensors, kLearningRate);
}

std::vector<TrueStep> train_alone(Net& net, const Samples& samples, const Batches& batches) {
  std::vector<TrueStep> steps;
  const auto parameters = unique_parameters(net);
  for (const auto& ranks : batches) {
    auto& step = steps.emplace_back();
    std::vector<int64_t> all;
    for (const auto& rows : ranks) {
      all.insert(all.end(), rows.begin(), rows.end());
      auto& own = step.of_rank.emplace_back();
      step.losses.push_back(gradients_of(net, samples.input_of(rows), samples.target_of(rows), own));
    }
    step.loss = gradients_of(net, samples.input_of(all), samples.target_of(all), step.gradients);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto tensor = parameters[i].tensor;
      tensor -= kLearningRate * step.gradients[i];
    }
    step.weights = weights_of(net);
  }
  return steps;
}

void expect_parity(Checker& checker, const std::string& net_name, const Net& net, const History& history,
                   const std::vector<TrueStep>& truth) {
  const auto parameters = unique_parameters(net);
  const auto world = history.weights.size();
  for (size_t s = 0; s < truth.size(); ++s) {
    for (size_t r = 0; r < world; ++r) {
      const auto& weights = history.weights[r];
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto stepped_by = (weights[s][i] - weights[s + 1][i]) / kLearningRate;
        const auto& right = truth[s].gradients[i];
        if (is_close(stepped_by, right)) continue;
        const auto where =
            fmt::format("step {}, rank {} of {}, {} of {}", s + 1, r, world, parameters[i].name, net_name);
        const auto n = static_cast<double>(world);
        std::vector<Wrong> known = {
            {"weights do not move", torch::zeros_like(right), "the weight is as it was before the step",
             "backward() fills the gradients, optimizer.step() uses them. Are both called, and is no "
             "gradient "
             "read before it has come?"},
            {"sum instead of mean", right * n,
             fmt::format("it stepped by {} times the gradient of the whole batch", world),
             "An all-reduce adds. The gradient of a mean over the whole batch is the mean of the ranks' "
             "gradients: divide by world_size, once."},
            {"divided twice", right / n,
             fmt::format("it stepped by 1/{} of the gradient of the whole batch", world),
             "The sum was divided by world_size more than once. Divide before the all-reduce or after it, "
             "not both, and each parameter once."},
            {"gradients not averaged", truth[s].of_rank[r][i],
             "it stepped by the gradient of this rank's own samples",
             "The all-reduce's result must be in the parameter's grad() before optimizer.step(). Was this "
             "parameter reduced, and was its result waited for and put back?"},
        };
        known.push_back(
            {"read too early", truth[s].of_rank[r][i] / n,
             fmt::format("it stepped by 1/{} of the gradient of this rank's own samples", world),
             "It was divided, but the other ranks' part is not in it: the all-reduce's result was "
             "read before wait()."});
        if (s > 0) {
          known.push_back(
              {"gradients not zeroed", right + (weights[s - 1][i] - weights[s][i]) / kLearningRate,
               "it stepped by this step's gradient and the last step's together",
               "backward() adds to grad(). Call optimizer.zero_grad() in every step, before it."});
        }
        for (const auto& wrong : known) {
          if (is_close(stepped_by, wrong.made_of))
            checker.fail(wrong.name, where + ": " + wrong.what, wrong.meaning);
        }
        checker.fail("wrong gradient",
                     fmt::format("{}: it stepped by a gradient that differs by up to {:.2g} from that of one "
                                 "process on the whole batch, whose largest number is {:.2g}",
                                 where, largest(stepped_by - right), largest(right)),
                     "Every rank must step by the mean over ranks of this parameter's gradients, those of "
                     "this step and of no other.");
      }
    }
    for (size_t r = 1; r < world; ++r) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        checker.expect(torch::equal(history.weights[0][s + 1][i], history.weights[r][s + 1][i]),
                       "replicas drift apart",
                       fmt::format("step {}: {} of {} has other bits on rank {} than on rank 0", s + 1,
                                   parameters[i].name, net_name, r),
                       "All ranks must step by the same bits: let everyone use the all-reduce's result, "
                       "divided in the same way.");
      }
    }
  }
}

std::vector<std::string> left_behind(const Net& net, const History& history,
                                     const std::vector<TrueStep>& truth, int step, int rank) {
  const auto s = static_cast<size_t>(step), r = static_cast<size_t>(rank);
  const auto parameters = unique_parameters(net);
  const auto& weights = history.weights[r];
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size() && weights.size() > s + 1; ++i) {
    const auto stepped_by = (weights[s][i] - weights[s + 1][i]) / kLearningRate;
    if (!is_close(stepped_by, truth[s].gradients[i]) && is_close(stepped_by, truth[s].of_rank[r][i]))
      names.push_back(parameters[i].name);
  }
  return names;
}

std::string Reduction::text() const {
  return parameter.empty() ? fmt::format("{} floats", count)
                           : fmt::format("the gradient of {} ({} floats)", parameter, count);
}

ReductionLog::ReductionLog(int world)
    : ranks_(static_cast<size_t>(world)), in_force_(collectives().all_reduce) {
  collectives().all_reduce = [this](Rank& rank, std::span<float> data) {
    auto& own = ranks_[static_cast<size_t>(rank.rank())];
    Reduction reduction{own.step, "", static_cast<int64_t>(data.size()), false};
    for (const auto& parameter :
         own.net == nullptr ? std::vector<NamedParameter>() : unique_parameters(*own.net)) {
      const auto& gradient = parameter.tensor.grad();
      if (gradient.defined() && gradient.data_ptr() == static_cast<const void*>(data.data()))
        reduction.parameter = parameter.name;
    }
    const size_t index = own.all.size();
    own.all.push_back(std::move(reduction));
    in_force_(rank, data);
    own.all[index].is_done = true;
  };
}

ReductionLog::~ReductionLog() {
  collectives().all_reduce = in_force_;
}

void ReductionLog::begin_step(int rank, int step, const std::shared_ptr<const Net>& net) {
  auto& own = ranks_[static_cast<size_t>(rank)];
  own.step = step;
  own.net = net;
}

std::vector<Reduction> ReductionLog::of(int rank, int step) const {
  std::vector<Reduction> found;
  for (const auto& each : ranks_[static_cast<size_t>(rank)].all) {
    if (each.step == step) found.push_back(each);
  }
  return found;
}

int64_t ReductionLog::floats_of(int rank, int step) const {
  int64_t sum = 0;
  for (const auto& each : of(rank, step)) sum += each.count;
  return sum;
}

int64_t ReductionLog::done_of(int rank, int step) const {
  const auto all = of(rank, step);
  return std::count_if(all.begin(), all.end(), [](const auto& each) { return each.is_done; });
}

std::string ReductionLog::first_difference(bool counts) const {
  const auto& first = ranks_[0].all;
  for (size_t r = 1; r < ranks_.size(); ++r) {
    const auto& other = ranks_[r].all;
    for (size_t k = 0; k < std::max(first.size(), other.size()); ++k) {
      if (k >= first.size() || k >= other.size()) {
        if (!counts) break;
        return fmt::format("rank 0 made {} all-reduces and rank {} made {}", first.size(), r, other.size());
      }
      const bool are_named = !first[k].parameter.empty() && !other[k].parameter.empty();
      if (first[k].count == other[k].count && (!are_named || first[k].parameter == other[k].parameter))
        continue;
      return fmt::format("all-reduce {} of the run: rank 0 reduced {}, rank {} reduced {}", k + 1,
                         first[k].text(), r, other[k].text());
    }
  }
  return "";
}

}  // namespace lab
