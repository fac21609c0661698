#include "lab/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <numeric>

#include "lab/collectives.h"
#include "lab/sums.h"

namespace lab {

namespace {

torch::Tensor rows_of(const torch::Tensor& from, std::span<const int64_t> rows) {
  return from.index_select(0, torch::tensor(std::vector<int64_t>(rows.begin(), rows.end()), torch::kLong));
}

torch::Tensor zeros_if_undefined(const torch::Tensor& gradient, const torch::Tensor& parameter) {
  return gradient.defined() ? gradient : torch::zeros_like(parameter);
}

/// The gradients of a batch's loss, and the loss.
double find_gradients(Net& net, const torch::Tensor& input, const torch::Tensor& target, Values& gradients) {
  const auto parameters = unique_parameters(net);
  for (const auto& parameter : parameters) parameter.tensor.mutable_grad().reset();
  const auto loss = torch::mse_loss(net.forward(input), target);
  loss.backward();
  for (const auto& parameter : parameters)
    gradients.push_back(zeros_if_undefined(parameter.tensor.grad(), parameter.tensor.detach()).clone());
  return loss.item<double>();
}

/// Says when it is asked to step.
struct WatchedSgd : torch::optim::SGD {
  WatchedSgd(const Net& net, const Rates& rates, std::function<void()> on_step)
      : torch::optim::SGD(make_optimizer(net, rates)), before_step(std::move(on_step)) {}
  torch::Tensor step(LossClosure closure = nullptr) override {
    before_step();
    return torch::optim::SGD::step(std::move(closure));
  }
  std::function<void()> before_step;
};

/// A tensor in memory with margins, to see whether somebody writes there.
struct Lent {
  GuardedFloats memory;
  torch::Tensor original, tensor;

  explicit Lent(const torch::Tensor& values)
      : memory(GuardedFloats::make(static_cast<size_t>(values.numel()))),
        original(values),
        tensor(torch::from_blob(memory.floats().data(), values.sizes())) {
    tensor.copy_(values);
  }
  std::string damage() const {
    if (!memory.damage().empty()) return memory.damage();
    const auto floats = memory.floats();
    return std::memcmp(floats.data(), original.data_ptr(), floats.size_bytes()) == 0 ? "" : "other values";
  }
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

Batches one_sided_batches(const Samples& samples, int world, int steps, int64_t share) {
  std::vector<int64_t> left, right;
  for (int64_t i = 0; i < samples.input.size(0); ++i) (i % 2 == 1 ? right : left).push_back(i);
  Batches batches;
  for (int s = 0; s < steps; ++s) {
    auto& step = batches.emplace_back();
    for (int r = 0; r < world; ++r) {
      const auto k = static_cast<size_t>(s * world + r);
      const bool is_one_sided = world > 1 && r == (world - 1 + s) % world;
      auto& own = step.emplace_back();
      for (size_t i = 0; i < static_cast<size_t>(share); ++i) own.push_back(right[(k + i) % right.size()]);
      if (!is_one_sided) own.back() = left[k % left.size()];
    }
  }
  return batches;
}

Values weights_of(const Net& net) {
  Values weights;
  for (const auto& parameter : unique_parameters(net)) weights.push_back(parameter.tensor.detach().clone());
  return weights;
}

Values gradients_of(const Net& net) {
  Values gradients;
  for (const auto& parameter : unique_parameters(net)) {
    const auto& gradient = parameter.tensor.grad();
    gradients.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  return gradients;
}

torch::optim::SGD make_optimizer(const Net& net, const Rates& rates) {
  std::vector<torch::Tensor> tensors;
  for (const auto& parameter : unique_parameters(net)) tensors.push_back(parameter.tensor);
  return torch::optim::SGD(tensors, torch::optim::SGDOptions(rates.learning_rate).momentum(rates.momentum));
}

std::vector<TrueStep> train_alone(Net& net, const Samples& samples, const Batches& batches,
                                  const Rates& rates, const History* found) {
  std::vector<TrueStep> steps;
  const auto parameters = unique_parameters(net);
  auto optimizer = make_optimizer(net, rates);
  for (const auto& ranks : batches) {
    if (const size_t s = steps.size(); found != nullptr && s > 0 && s < found->weights[0].size()) {
      for (size_t i = 0; i < parameters.size(); ++i)
        parameters[i].tensor.detach().copy_(found->weights[0][s][i]);
    }
    auto& step = steps.emplace_back();
    std::vector<int64_t> all;
    for (const auto& rows : ranks) {
      all.insert(all.end(), rows.begin(), rows.end());
      auto& own = step.of_rank.emplace_back();
      step.losses.push_back(find_gradients(net, samples.input_of(rows), samples.target_of(rows), own));
    }
    step.loss = find_gradients(net, samples.input_of(all), samples.target_of(all), step.gradients);
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i].tensor.mutable_grad() = step.gradients[i].clone();
    step.moves = weights_of(net);
    optimizer.step();
    const auto after = weights_of(net);
    for (size_t i = 0; i < parameters.size(); ++i) step.moves[i] -= after[i];
  }
  return steps;
}

History History::make(int world) {
  const auto n = static_cast<size_t>(world);
  History history;
  history.weights.resize(n);
  history.gradients.resize(n);
  history.updates.resize(n);
  history.reduced.resize(n);
  history.losses.resize(n);
  return history;
}

std::string Reduction::text() const {
  return parameter.empty() ? counted(count, "float")
                           : fmt::format("the gradient of {} ({})", parameter, counted(count, "float"));
}

ReductionLog::ReductionLog(int world)
    : ranks_(static_cast<size_t>(world)), in_force_(collectives().all_reduce) {
  all_.ranks.resize(ranks_.size());
  collectives().all_reduce = [this](Rank& rank, std::span<float> data) {
    auto& own = ranks_[static_cast<size_t>(rank.rank())];
    Reduction reduction{.step = own.step, .count = static_cast<int64_t>(data.size())};
    for (const auto& parameter :
         own.net == nullptr ? std::vector<NamedParameter>() : unique_parameters(*own.net)) {
      const auto& gradient = parameter.tensor.grad();
      if (gradient.defined() && gradient.data_ptr() == static_cast<const void*>(data.data()))
        reduction.parameter = parameter.name;
      reduction.is_weight |= parameter.tensor.data_ptr() == static_cast<const void*>(data.data());
    }
    auto& all = all_.ranks[static_cast<size_t>(rank.rank())];
    const size_t index = all.size();
    all.push_back(std::move(reduction));
    in_force_(rank, data);
    all[index].is_done = true;
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

std::vector<Reduction> Reductions::of(int rank, int step) const {
  std::vector<Reduction> found;
  for (const auto& each : ranks[static_cast<size_t>(rank)]) {
    if (each.step == step) found.push_back(each);
  }
  return found;
}

int64_t Reductions::floats_of(int rank, int step) const {
  int64_t sum = 0;
  for (const auto& each : of(rank, step)) sum += each.count;
  return sum;
}

int64_t Reductions::done_of(int rank, int step) const {
  const auto all = of(rank, step);
  return std::count_if(all.begin(), all.end(), [](const auto& each) { return each.is_done; });
}

std::string Reductions::first_difference(bool counts) const {
  const auto& first = ranks[0];
  for (size_t r = 1; r < ranks.size(); ++r) {
    const auto& other = ranks[r];
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

Training train_ranks(const Checker& checker, const Job& job,
                     const std::function<Step(Rank& rank, Net& net)>& begin, double layer_us) {
  const auto world = static_cast<size_t>(job.world);
  ReductionLog log(job.world);
  Training training{.history = History::make(job.world)};
  auto& history = training.history;
  // All live on for what is started and never waited for.
  std::vector<std::shared_ptr<Net>> nets;
  std::vector<Step> steps(world);
  std::list<Lent> lent;
  for (int r = 0; r < job.world; ++r) nets.push_back(job.make(r));
  const auto body = [&](Rank& rank) {
    const auto r = static_cast<size_t>(rank.rank());
    Net& net = *nets[r];
    size_t s = 0;
    WatchedSgd optimizer(net, job.rates, [&] {
      if (history.updates[r][s]++ > 0) return;
      history.gradients[r][s] = gradients_of(net);
      history.reduced[r][s] = log.all().done_of(rank.rank(), static_cast<int>(s));
    });
    steps[r] = begin(rank, net);
    if (layer_us > 0) net.before_backward_of = [&](int) { rank.compute(layer_us); };
    history.weights[r].push_back(weights_of(net));
    for (; s < job.batches.size(); ++s) {
      log.begin_step(rank.rank(), static_cast<int>(s), nets[r]);
      if (job.resets) {
        for (const auto& parameter : unique_parameters(net)) parameter.tensor.mutable_grad().reset();
      }
      history.updates[r].push_back(0);
      history.reduced[r].push_back(0);
      history.gradients[r].emplace_back();
      const auto& rows = job.batches[s][r];
      const auto& input = lent.emplace_back(job.samples.input_of(rows));
      const auto& target = lent.emplace_back(job.samples.target_of(rows));
      history.losses[r].push_back(steps[r](optimizer, input.tensor, target.tensor));
      if (history.updates[r][s] == 0) history.gradients[r][s] = gradients_of(net);
      history.weights[r].push_back(weights_of(net));
      for (const auto* const each : {&input, &target}) {
        if (history.damage.empty() && !each->damage().empty())
          history.damage =
              fmt::format("step {}, rank {} of {}, {}: the {} holds {} after the step", s + 1, r, world,
                          job.net_name, each == &input ? "input" : "target", each->damage());
      }
    }
    net.before_backward_of = nullptr;
  };
  training.report = run_world({.world = job.world, .seed = checker.seed(), .keep_events = false}, body);
  training.reductions = log.all();
  return training;
}

double bytes_kept(const std::function<Step(Rank& rank, Net& net)>& begin) {
  const int warm = 50, steps = 200;
  double kept = 0;
  const auto net = make_mlp(4, 2, 1);
  const auto samples = make_samples(3, 4, 1);
  run_world({.world = 1, .keep_events = false}, [&](Rank& rank) {
    auto optimizer = make_optimizer(*net);
    const Step step = begin(rank, *net);
    size_t before = 0;
    for (int s = 0; s < warm + steps; ++s) {
      if (s == warm) before = heap_bytes();
      step(optimizer, samples.input, samples.target);
    }
    kept = (static_cast<double>(heap_bytes()) - static_cast<double>(before)) / steps;
  });
  return kept;
}

}  // namespace lab
