#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "01_train_step/parts.h"
#include "lab/torch_guard.h"

namespace lab::baseline {

namespace {

using mlp::close;
using torch::Tensor;

constexpr const char* kIgnoredRate =
    "The steps are those of the learning rate 0.02, which other calls had. Hand the lr of this call to each "
    "step.";

/// A call of train.
struct Pass {
  mlp::Shape shape;
  int64_t batch = 0, count = 0;
  double lr = kLearningRate;

  size_t steps() const { return static_cast<size_t>((count + batch - 1) / batch); }
  int64_t begin(size_t step) const { return static_cast<int64_t>(step) * batch; }
  int64_t length(size_t step) const { return std::min(batch, count - begin(step)); }
};

/// What a pass gives; of the learner's code, or what it should be.
struct Trained {
  std::vector<double> losses;
  Tensor weights, inputs, targets;
  mlp::Passes passes;
};

Trained run_train(const Seam& seam, Checker& checker, const Pass& pass, const mlp::Samples& samples) {
  return checker.in_child([&] {
    mlp::CountedModel counted(checker, pass.shape);
    mlp::set_gradients(counted.model, 1);
    auto handed = counted.model;
    Trained trained{.inputs = samples.inputs.clone(), .targets = samples.targets.clone()};
    trained.losses = guard_torch(checker, fmt::format("train on {} samples", pass.count), [&] {
      return seam.train(handed, trained.inputs, trained.targets, pass.batch, pass.lr);
    });
    trained.weights = mlp::flat_weights(counted.model);
    trained.passes = counted.counting->passes;
    return trained;
  });
}

/// A plain loop. Step s takes the batch `order(s)`.
template <typename Order>
Trained plain_loop(const Checker& checker, const Pass& pass, const mlp::Samples& samples, size_t steps,
                   const Order& order) {
  Trained trained{.weights = mlp::flat_weights(mlp::make_model(checker, pass.shape))};
  for (size_t step = 0; step < steps; ++step) {
    const size_t from = order(step);
    const auto input = samples.input(pass.begin(from), pass.length(step)),
               target = samples.target(pass.begin(from), pass.length(step));
    trained.losses.push_back(mlp::loss_of(trained.weights, pass.shape, input, target));
    trained.weights -= pass.lr * mlp::gradient_of(trained.weights, pass.shape, input, target);
  }
  return trained;
}
Trained plain_loop(const Checker& checker, const Pass& pass, const mlp::Samples& samples, size_t steps) {
  return plain_loop(checker, pass, samples, steps, [](size_t step) { return step; });
}

/// Step `step` is the first with another loss: why?
[[noreturn]] void explain_loss(Checker& checker, const Pass& pass, const mlp::Samples& samples, size_t step,
                               const Trained& trained, const Trained& right) {
  const double found = trained.losses[step];
  const auto start = mlp::flat_weights(mlp::make_model(checker, pass.shape));
  const auto before = plain_loop(checker, pass, samples, step).weights,
             after = plain_loop(checker, pass, samples, step + 1).weights;
  const auto loss_by = [&](const Tensor& weights) {
    return mlp::loss_of(weights, pass.shape, samples.input(pass.begin(step), pass.length(step)),
                        samples.target(pass.begin(step), pass.length(step)));
  };
  const auto& forward = trained.passes.forward;
  const bool has_size = step < forward.size() && forward[step] != pass.length(step);
  const auto what =
      fmt::format("step {} of {}: the loss is {:.9g}, expected {:.9g}{}{}", step + 1, pass.steps(), found,
                  right.losses[step], step > 0 ? "; all before it are right" : "",
                  has_size ? fmt::format("; forward call {} had {}, expected {}", step + 1,
                                         counted(forward[step], "sample"), pass.length(step))
                           : "");
  std::vector<Suspect> suspects = {
      {loss_by(after), "loss of the moved weights",
       "That is the loss of this step's batch after its update. Keep the one that backward() started from."},
      {right.losses[step] * static_cast<double>(pass.length(step)), "sum instead of mean",
       "Each loss is the mean of its batch: do not multiply it by the number of samples."},
  };
  if (step > 0) {
    const auto repeated =
        plain_loop(checker, pass, samples, step + 1, [](size_t) { return size_t{0}; }).losses;
    suspects.push_back(
        {repeated[step], "same batch again",
         "That is the loss of the first batch once more. Step s takes the samples from (s - 1) * batch on. "
         "Repeating one batch makes the loss fall, too: the model learns it by heart."});
    suspects.push_back({loss_by(start), "weights stand still",
                        "That is the loss of this batch by the weights of the very beginning: the steps "
                        "before it have moved no weight of this model."});
  }
  if (step > 0 && pass.lr != kLearningRate) {
    auto usual = pass;
    usual.lr = kLearningRate;
    suspects.push_back(
        {plain_loop(checker, usual, samples, step + 1).losses[step], "learning rate ignored", kIgnoredRate});
  }
  for (const auto& [value, name, meaning] : suspects)
    checker.expect(!close(found, value), name, what, meaning);
  checker.expect(!has_size, "other batches", what,
                 "A step takes `batch` samples from where the one before it ended; the last one takes what "
                 "is left.");
  checker.fail("other losses", what,
               "The steps are right one by one, so look at the loop: which samples does this step take, with "
               "which lr, and is anything else done between two steps?");
}

void check_weights(Checker& checker, const Pass& pass, const mlp::Samples& samples, const Trained& trained,
                   const Trained& right) {
  if (close(trained.weights, right.weights)) return;
  const int64_t at = (trained.weights - right.weights).abs().argmax().item<int64_t>();
  const auto what =
      fmt::format("after {} with the right losses: {} is {:.9g}, expected {:.9g}",
                  counted(static_cast<int64_t>(pass.steps()), "step"), mlp::place(pass.shape, at),
                  trained.weights[at].item<double>(), right.weights[at].item<double>());
  checker.expect(!close(trained.weights, mlp::flat_weights(mlp::make_model(checker, pass.shape))),
                 "weights stand still", what,
                 "The model is as it was before. Train the model that is passed in, not a copy of it.");
  checker.expect(!close(trained.weights, plain_loop(checker, pass, samples, pass.steps() - 1).weights),
                 "last step left out", what, "The last batch's loss is there, but not its update.");
  auto usual = pass;
  usual.lr = kLearningRate;
  checker.expect(!close(trained.weights, plain_loop(checker, usual, samples, pass.steps()).weights),
                 "learning rate ignored", what, kIgnoredRate);
  checker.expect(pass.steps() > 1, "other weights", what,
                 "Which lr did this step have, and is anything done after it?");
  checker.fail("other weights", what,
               "The losses say that every step began with the right weights. Is something done after the "
               "last one, such as a second pass?");
}

/// What a pass costs and leaves alone.
void check_pass(Checker& checker, const Pass& pass, const mlp::Samples& samples, const Trained& trained) {
  checker.expect(
      torch::equal(trained.inputs, samples.inputs) && torch::equal(trained.targets, samples.targets),
      "samples changed", "after train the inputs or targets differ",
      "They belong to the caller, who may want a second pass.");
  const auto [forward, backward, heap] = trained.passes;
  checker.expect(
      mlp::sum(forward) == pass.count && mlp::sum(backward) <= pass.count, "forward twice",
      fmt::format("train went forward on {} and backward on {}, for {}", counted(mlp::sum(forward), "sample"),
                  counted(mlp::sum(backward), "sample"), counted(pass.count, "sample")),
      "One forward and one backward are enough for each sample.");
  if (heap.size() < 40) return;
  const size_t half = heap.size() / 2, last = heap.size() - 1;
  const auto grown = static_cast<int64_t>(heap[last]) - static_cast<int64_t>(heap[half]);
  checker.expect(
      grown < 4096 * static_cast<int64_t>(last - half), "memory grows",
      fmt::format("from forward {} to forward {} the process has grown by {} bytes", half + 1, last + 1,
                  grown),
      "Something of every step is kept. A loss that is kept as a tensor keeps its whole graph, with all "
      "activations: keep loss.item<double>().");
}

Trained check_loop(const Seam& seam, Checker& checker, const Pass& pass) {
  const auto samples = mlp::make_samples(checker, pass.count, pass.shape.dim);
  const auto right = plain_loop(checker, pass, samples, pass.steps());
  const auto trained = run_train(seam, checker, pass, samples);
  const size_t found = trained.losses.size(), expected = pass.steps();
  for (size_t step = 0; step < std::min(found, expected); ++step) {
    if (!close(trained.losses[step], right.losses[step]))
      explain_loss(checker, pass, samples, step, trained, right);
  }
  const auto what = fmt::format("{} for {} in batches of {}, expected {}",
                                found == 1 ? "1 loss" : fmt::format("{} losses", found),
                                counted(pass.count, "sample"), pass.batch, expected);
  const int64_t left = pass.count % pass.batch;
  checker.expect(left == 0 || found + 1 != expected, "tail left out", what,
                 fmt::format("{} left after {}. They are data, too: the last step takes what is there.",
                             left == 1 ? "1 sample is" : fmt::format("{} samples are", left),
                             counted(pass.count / pass.batch, "full batch")));
  checker.expect(found == expected, "wrong number of steps", what,
                 "train goes over all samples once, `batch` of them a step, and keeps every step's loss.");
  check_weights(checker, pass, samples, trained, right);
  check_pass(checker, pass, samples, trained);
  return trained;
}

}  // namespace

void check_train(const Seam& seam, Checker& checker) {
  const auto losses = check_loop(seam, checker, {{32, kDepth}, 32, 50 * 32}).losses;
  std::string line;
  for (const size_t step : {0, 1, 4, 9, 19, 29, 39, 49})
    line += fmt::format("{}{:.3f} ({})", line.empty() ? "" : "  ", losses[step], step + 1);
  checker.note("loss (in step): " + line);
  const auto mean_of_five = [&](size_t from) {
    double sum = 0;
    for (size_t i = from; i < from + 5; ++i) sum += losses[i] / 5;
    return sum;
  };
  checker.proved(
      fmt::format("the losses of {} steps, and the weights after them, are those of a plain loop; every "
                  "sample is new, and the loss falls from {:.2f} to {:.2f}",
                  losses.size(), mean_of_five(0), mean_of_five(losses.size() - 5)));
  check_loop(seam, checker, {{32, kDepth}, 32, 5 * 32 + 7});
  const int64_t few = checker.draw_between(40, 2, 9), batch = checker.draw_between(41, 2, 5);
  const double lr = static_cast<double>(checker.draw_between(42, 10, 90)) * 1e-4;
  const std::vector<Pass> drawn = {
      {{checker.draw_between(43, 5, 40), kDepth}, few + checker.draw_between(44, 1, 9), few, lr},
      {{checker.draw_between(45, 5, 40), kDepth}, 1, few, lr},
      {{checker.draw_between(46, 5, 15), kDepth},
       batch,
       batch * checker.draw_between(47, 257, 290) + checker.draw_between(48, 1, batch - 1),
       lr / 10}};
  for (const auto& pass : drawn) check_loop(seam, checker, pass);
  checker.proved(
      "no sample is left out, also with batches, widths and learning rates drawn from the seed, up to more "
      "than 256 steps");
}

}  // namespace lab::baseline
