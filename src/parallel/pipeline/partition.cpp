#include "lockstep/parallel/pipeline/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "lockstep/error.h"
#include "parallel/default_generator.h"

namespace lockstep {

namespace {

void require_layers(int64_t layers, int stages) {
  if (stages >= 1 && layers >= stages) return;
  throw UsageError(
      fmt::format("{} layers cannot be cut into {} stages; hint: each stage needs one", layers, stages));
}

/// Seconds that forward and backward of each layer take, once.
std::vector<double> time_layers(torch::nn::Sequential& model, const at::Tensor& input) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  at::Tensor x = input.detach();
  for (auto& layer : *model) {
    // A copy: a layer in place may not change a leaf.
    x = x.is_floating_point() ? x.detach().requires_grad_().clone() : x.detach();
    const auto start = Clock::now();
    const at::Tensor y = layer.forward(x);
    if (y.requires_grad()) y.sum().backward();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    x = y;
  }
  return seconds;
}

/// The median of some rounds. Gradients, buffers and torch's generator are as before.
std::vector<double> median_times(torch::nn::Sequential& model, const at::Tensor& input) {
  constexpr size_t kRounds = 5;
  const parallel::KeepDefaultGenerator keep;
  const auto parameters = model->parameters();
  const auto buffers = model->buffers();
  std::vector<at::Tensor> gradients, states;
  for (const auto& parameter : parameters) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  for (const auto& buffer : buffers) states.push_back(buffer.clone());
  std::vector<std::vector<double>> rounds;
  while (rounds.size() < kRounds) rounds.push_back(time_layers(model, input));
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].detach().copy_(states[i]);
  std::vector<double> median(model->size());
  for (size_t layer = 0; layer < median.size(); ++layer) {
    std::vector<double> times;
    for (const auto& round : rounds) times.push_back(round[layer]);
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    median[layer] = times[kRounds / 2];
  }
  return median;
}

}  // namespace

Cuts cut_by_count(int64_t layers, int stages) {
  require_layers(layers, stages);
  Cuts cuts = {0};
  for (int stage = 0; stage < stages; ++stage) {
    cuts.push_back(cuts.back() + layers / stages + (stage < layers % stages ? 1 : 0));
  }
  return cuts;
}

Cuts cut_by_weight(const std::vector<double>& weights, int stages) {
  const size_t layers = weights.size();
  require_layers(static_cast<int64_t>(layers), stages);
  std::vector<double> sum = {0};
  for (const double weight : weights) {
    if (!(weight >= 0)) throw UsageError(fmt::format("cut_by_weight: a layer weighs {}", weight));
    sum.push_back(sum.back() + weight);
  }
  // best[s][n]: the heaviest of s stages that have the first n layers; from[s][n]: where the last one begins.
  const auto count = static_cast<size_t>(stages);
  std::vector best(count + 1, std::vector(layers + 1, std::numeric_limits<double>::infinity()));
  std::vector from(count + 1, std::vector<size_t>(layers + 1));
  best[0][0] = 0;
  for (size_t s = 1; s <= count; ++s) {
    for (size_t n = s; n <= layers; ++n) {
      for (size_t begin = s - 1; begin < n; ++begin) {
        const double heaviest = std::max(best[s - 1][begin], sum[n] - sum[begin]);
        if (heaviest >= best[s][n]) continue;
        best[s][n] = heaviest;
        from[s][n] = begin;
      }
    }
  }
  Cuts cuts(count + 1);
  size_t end = layers;
  for (size_t s = count; s > 0; --s) {
    cuts[s] = static_cast<int64_t>(end);
    end = from[s][end];
  }
  return cuts;
}

Cuts cut_by_parameters(const torch::nn::Sequential& model, int stages) {
  std::vector<double> counts;
  for (const auto& layer : model->children()) {
    double count = 0;
    for (const auto& parameter : layer->parameters()) count += static_cast<double>(parameter.numel());
    counts.push_back(count);
  }
  return cut_by_weight(counts, stages);
}

Cuts cut_by_time(torch::nn::Sequential model, const at::Tensor& input, int stages, Communicator& comm) {
  std::vector<double> times(model->size());
  if (comm.rank() == 0) {
    try {
      times = median_times(model, input);
    } catch (const std::exception& error) {
      comm.abort(fmt::format("cut_by_time on rank 0: {}", error.what()));  // the others wait for it
      throw;
    }
  }
  comm.broadcast(times);
  return cut_by_weight(times, stages);
}

torch::nn::Sequential take_stage(const torch::nn::Sequential& model, const Cuts& cuts, int stage) {
  if (stage < 0 || static_cast<size_t>(stage) + 1 >= cuts.size() ||
      cuts.back() != static_cast<int64_t>(model->size())) {
    throw UsageError(
        fmt::format("take_stage: there is no stage {} of {}, cut for {} layers, in a model of {}", stage,
                    cuts.empty() ? 0 : cuts.size() - 1, cuts.empty() ? 0 : cuts.back(), model->size()));
  }
  torch::nn::Sequential part;
  const auto names = model->named_children().keys();
  for (int64_t i = cuts[static_cast<size_t>(stage)]; i < cuts[static_cast<size_t>(stage) + 1]; ++i) {
    part->push_back(names[static_cast<size_t>(i)], *(model->begin() + i));
  }
  return part;
}

}  // namespace lockstep
