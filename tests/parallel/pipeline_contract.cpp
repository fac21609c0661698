#include "parallel/pipeline_contract.h"

#include <fmt/ranges.h>

#include <chrono>
#include <random>
#include <thread>

#include "parallel/pipeline_contract_support.h"
#include "parallel/pipeline_models.h"

namespace lockstep::test {

namespace {

torch::Tensor sum_of_squares(const torch::Tensor& output, const torch::Tensor& target) {
  return (output - target).square().sum();
}

void require_gradients(Problems& problems, const std::string& what, const std::vector<AnyModel>& chunks,
                       const torch::nn::Sequential& alone) {
  const auto expected = alone->named_parameters();
  for (const auto& [name, parameter] : parameters_of(chunks)) {
    const auto& gradient = parameter.grad();
    require(problems, gradient.defined() && torch::allclose(gradient, expected[name].grad(), 1e-4, 1e-6),
            fmt::format("{}: the gradient of {} is not that of one process", what, name));
  }
}

void check_step(Communicator& comm, const Way& way, int microbatches, Problems& problems) {
  const std::string what = describe(way, microbatches);
  const auto x = random(1, {13, kDim}), y = random(2, {13, kDim});
  auto alone = mlp(kDim, kDepth);
  const auto expected = mean_squared_error(alone->forward(x), y);
  expected.backward();
  const auto chunks = chunks_of(mlp(kDim, kDepth), comm, way.chunks);
  Pipeline pipeline(chunks, comm, mean_squared_error,
                    {.schedule = way.schedule, .microbatches = microbatches});
  for (int step = 0; step < 2; ++step) {  // the first finds out the shapes
    zero_grad(chunks);
    const auto loss = pipeline.step(x, y);
    const bool is_last = comm.rank() + 1 == comm.world_size();
    require(problems, loss.defined() == is_last, what + ": the loss is not where it shall be");
    if (loss.defined()) {
      require(
          problems, torch::allclose(loss, expected.detach(), 1e-5),
          fmt::format("{}: loss {}, in one process {}", what, loss.item<double>(), expected.item<double>()));
    }
    require_gradients(problems, what, chunks, alone);
  }
}

/// Two steps of batches of different sizes whose mean, or half of the sum, counts.
void check_accumulation(Communicator& comm, const Way& way, LossReduction reduction, Problems& problems) {
  const Pipeline::Loss loss = reduction == LossReduction::kSum ? sum_of_squares : mean_squared_error;
  const auto x = random(1, {13, kDim}), y = random(2, {13, kDim});
  const auto z = random(3, {7, kDim}), t = random(4, {7, kDim});
  auto alone = mlp(kDim, kDepth);
  (loss(alone->forward(x), y) / 2 + loss(alone->forward(z), t) / 2).backward();
  const auto chunks = chunks_of(mlp(kDim, kDepth), comm, way.chunks);
  Pipeline pipeline(chunks, comm, loss,
                    {.schedule = way.schedule, .microbatches = 3, .reduction = reduction});
  pipeline.step(x, y, 0.5);
  pipeline.step(z, t, 0.5);
  const char* const name = reduction == LossReduction::kSum ? "sum" : "mean";
  require_gradients(problems, fmt::format("{} of accumulated steps, {}", name, way.schedule), chunks, alone);
}

void check_training(Communicator& comm, const Way& way, Problems& problems) {
  constexpr int kSteps = 4;
  const auto batch_of = [](int number) { return random(10 + static_cast<uint64_t>(number), {8, kDim}); };
  const torch::optim::AdamOptions adam(0.01);
  auto alone = mlp(kDim, kDepth);
  torch::optim::Adam expected(alone->parameters(), adam);
  const auto chunks = chunks_of(mlp(kDim, kDepth), comm, way.chunks);
  std::vector<torch::Tensor> own;
  for (const auto& [name, parameter] : parameters_of(chunks)) own.push_back(parameter);
  torch::optim::Adam optimizer(own, adam);
  Pipeline pipeline(chunks, comm, mean_squared_error, {.schedule = way.schedule, .microbatches = 3});
  for (int step = 0; step < kSteps; ++step) {
    expected.zero_grad();
    mean_squared_error(alone->forward(batch_of(step)), batch_of(step + 50)).backward();
    expected.step();
    optimizer.zero_grad();
    pipeline.step(batch_of(step), batch_of(step + 50));
    optimizer.step();
  }
  const auto weights = alone->named_parameters();
  for (const auto& [name, parameter] : parameters_of(chunks)) {
    require(problems, torch::allclose(parameter, weights[name], 1e-4, 1e-5),
            fmt::format("{}: {} is not that of one process after {} steps", way.schedule, name, kSteps));
  }
}

torch::nn::Sequential with_dropout() {
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) {
    model->push_back(torch::nn::Linear(kDim, kDim));
    model->push_back(torch::nn::Dropout(0.5));
    model->push_back(torch::nn::Tanh());
  }
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(3);
  for (auto& parameter : model->parameters()) parameter.uniform_(-0.4, 0.4, generator);
  return model;
}

using Gradients = std::map<std::string, torch::Tensor>;

Gradients gradients_of(const std::vector<AnyModel>& chunks) {
  Gradients gradients;
  for (const auto& [name, parameter] : parameters_of(chunks)) gradients[name] = parameter.grad().clone();
  return gradients;
}

/// Gradients of each of two steps that start from the same weights.
std::array<Gradients, 2> two_steps(Communicator& comm, const std::vector<AnyModel>& chunks,
                                   const PipelineOptions& options) {
  Pipeline pipeline(chunks, comm, mean_squared_error, options);
  const auto x = random(1, {13, kDim}), y = random(2, {13, kDim});
  std::array<Gradients, 2> found;
  for (auto& gradients : found) {
    zero_grad(chunks);
    pipeline.step(x, y);
    gradients = gradients_of(chunks);
  }
  return found;
}

/// Those that `found` has are the same bits as in `expected`.
bool are_among(const Gradients& found, const Gradients& expected) {
  return std::all_of(found.begin(), found.end(),
                     [&](const auto& item) { return torch::equal(item.second, expected.at(item.first)); });
}

/// One layer for each stage but the last, which has all others.
Cuts lopsided(int64_t layers, int stages) {
  Cuts cuts;
  for (int stage = 0; stage < stages; ++stage) cuts.push_back(stage);
  cuts.push_back(layers);
  return cuts;
}

/// Drops elements, and keeps its masks.
struct MaskedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    masks.push_back(torch::dropout(torch::ones_like(x), 0.5, /*train=*/true).detach().clone());
    return x * masks.back();
  }
  std::vector<torch::Tensor> masks;
};
TORCH_MODULE(Masked);

/// Every step, micro-batch, layer and stage draws its own mask, also if stages were not cut from one model.
void check_masks(Communicator& comm, bool in_sequentials, Problems& problems) {
  Masked first, second;
  torch::nn::Sequential both(first, second);  // layers "0" and "1" on every rank
  Pipeline pipeline(in_sequentials ? AnyModel(both) : AnyModel(first), comm, mean_squared_error,
                    {.microbatches = 3});
  const auto x = random(1, {48, kDim});
  for (int step = 0; step < 2; ++step) pipeline.step(x, x);
  auto masks = first->masks;
  masks.insert(masks.end(), second->masks.begin(), second->masks.end());
  const auto own = torch::stack(masks).flatten(1);
  auto all = torch::empty({comm.world_size() * own.size(0), own.size(1)});
  comm.all_gather(own, all);
  for (int64_t a = 0; a < all.size(0); ++a) {
    for (int64_t b = a + 1; b < all.size(0); ++b) {
      require(problems, !torch::equal(all[a], all[b]),
              fmt::format("masks {} and {} of {} on each rank, {}Sequentials, are the same", a, b,
                          own.size(0), in_sequentials ? "" : "no "));
    }
  }
}

}  // namespace

std::vector<std::string> check_pipeline_results(Communicator& comm) {
  Problems problems;
  for (const Way& way : kWays) {
    for (const int microbatches : {1, 2, 3, 8}) check_step(comm, way, microbatches, problems);
    check_accumulation(comm, way, LossReduction::kMean, problems);
    check_accumulation(comm, way, LossReduction::kSum, problems);
    check_training(comm, way, problems);
  }
  return problems;
}

std::vector<std::string> check_pipeline_dropout(Communicator& comm) {
  Problems problems;
  PipelineOptions options = {.schedule = "gpipe", .microbatches = 3, .seed = 11};
  auto alone = *comm.split(comm.rank());
  const auto expected = two_steps(alone, chunks_of(with_dropout(), alone), options);
  require(problems, !are_among(expected[0], expected[1]), "both steps draw the same masks");
  options.seed = 12;
  require(problems, !are_among(two_steps(alone, chunks_of(with_dropout(), alone), options)[0], expected[0]),
          "two seeds draw the same masks");
  options.seed = 11;
  const auto layers = static_cast<int64_t>(with_dropout()->size());
  for (const Way& way : kWays) {
    const int stages = comm.world_size() * way.chunks;
    for (const Cuts& cuts : {cut_by_count(layers, stages), lopsided(layers, stages)}) {
      for (const bool recomputes : {false, true}) {
        options.schedule = way.schedule;
        options.recompute = recomputes;
        const auto found = two_steps(comm, chunks_of(with_dropout(), comm, cuts), options);
        for (size_t step = 0; step < found.size(); ++step) {
          require(problems, are_among(found[step], expected[step]),
                  fmt::format("dropout in step {} of {}, cut at {}{}: the masks are not those of one rank",
                              step, way.schedule, fmt::join(cuts, ", "), recomputes ? ", recomputed" : ""));
        }
      }
    }
  }
  for (const bool in_sequentials : {false, true}) check_masks(comm, in_sequentials, problems);
  return problems;
}

std::vector<std::string> check_pipeline_tied(Communicator& comm) {
  Problems problems;
  if (comm.world_size() == 1) return problems;  // its stages share the tensor itself
  constexpr int kSteps = 5;
  constexpr int64_t kWords = 7;
  const bool is_first = comm.rank() == 0, is_last = comm.rank() + 1 == comm.world_size();
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nn::functional::cross_entropy(output, target);
  };
  const auto words_of = [](int step) {
    return random(30 + static_cast<uint64_t>(step), {10}).mul(3).abs().to(torch::kLong).clamp_max(kWords - 1);
  };
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9);
  for (const char* schedule : {"gpipe", "1f1b"}) {
    Embedding embedding(kWords, kDim);
    Head head(embedding->weight);
    torch::optim::SGD alone({embedding->weight}, sgd);
    torch::nn::Sequential stage;
    torch::Tensor weight;
    if (is_first) {
      Embedding first(kWords, kDim);
      weight = first->weight;
      stage->push_back(first);
      stage->push_back(torch::nn::Tanh());
    } else if (is_last) {
      Head last(torch::zeros({kWords, kDim}));  // the first rank's counts
      weight = last->weight;
      stage->push_back(last);
    } else {
      stage->push_back(torch::nn::Identity());
    }
    PipelineOptions options = {.schedule = schedule, .microbatches = 3};
    if (weight.defined()) options.tied["words"] = weight;
    Pipeline pipeline(stage, comm, loss, options);
    std::optional<torch::optim::SGD> optimizer;
    if (weight.defined()) optimizer.emplace(std::vector{weight}, sgd);
    for (int step = 0; step < kSteps; ++step) {
      const auto words = words_of(step);
      alone.zero_grad();
      loss(head->forward(embedding->forward(words).tanh()), words).backward();
      alone.step();
      if (optimizer) optimizer->zero_grad();
      pipeline.step(words, words);
      if (optimizer) optimizer->step();
      auto of_first = is_first ? weight.detach().clone() : torch::zeros({kWords, kDim});
      comm.broadcast(of_first);
      if (!weight.defined()) continue;
      require(problems, torch::equal(of_first, weight),
              fmt::format("{}: the tied weights differ after step {}", schedule, step));
      require(problems, torch::allclose(weight, embedding->weight, 1e-4, 1e-5),
              fmt::format("{}: the tied weight is not that of one process after step {}", schedule, step));
    }
  }
  return problems;
}

std::vector<std::string> check_pipeline_delays(Communicator& comm) {
  Problems problems;
  const auto dice = std::make_shared<std::minstd_rand>(static_cast<unsigned>(comm.rank() + 1));
  const auto be_late = [dice] {
    std::this_thread::sleep_for(std::chrono::microseconds((*dice)() % 8 == 0 ? 1500 : (*dice)() % 100));
  };
  const torch::nn::Functional late([be_late](const torch::Tensor& x) {
    be_late();
    const torch::Tensor y = x * 1;
    if (y.requires_grad()) y.register_hook([be_late](const torch::Tensor&) { be_late(); });
    return y;
  });
  for (const Way& way : kWays) {
    const auto chunks = chunks_of(mlp(kDim, kDepth), comm, way.chunks);
    const PipelineOptions options = {.schedule = way.schedule, .microbatches = 4};
    const auto expected = two_steps(comm, chunks, options);
    for (const auto& chunk : chunks) chunk->as<torch::nn::SequentialImpl>()->push_back("late", late);
    const auto found = two_steps(comm, chunks, options);
    for (size_t step = 0; step < found.size(); ++step) {
      require(problems, are_among(found[step], expected[step]),
              fmt::format("{}: delays change the gradients of step {}", way.schedule, step));
    }
  }
  return problems;
}

std::string check_pipeline(Communicator& comm) {
  std::string text;
  for (const auto check : {check_pipeline_results, check_pipeline_dropout, check_pipeline_tied,
                           check_pipeline_delays, check_pipeline_run, check_pipeline_memory}) {
    for (const auto& problem : check(comm)) text += fmt::format("rank {}: {}\n", comm.rank(), problem);
  }
  return text;
}

}  // namespace lockstep::test
