#include "18_stages/check_whole.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/tensor_data.h"

namespace lab::stages {

using torch::Tensor;

namespace {

constexpr double kRate = 0.05;

Tensor drawn(const Checker& checker, uint64_t salt) {
  auto values = torch::empty({shape().batch, shape().width});
  auto* const data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const uint64_t bits = checker.draw((salt << 32) + static_cast<uint64_t>(i)) >> 40;
    data[i] = static_cast<float>(bits) / static_cast<float>(1 << 23) - 1;
  }
  return values;
}

double largest(const Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

std::string shape_of(const Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void check_partition(const Seam& seam, Checker& checker) {
  std::vector<std::pair<int, int>> shapes;  // layers, stages
  for (const int stages : checker.worlds({1, 2, 3, 4, 5})) shapes.emplace_back(std::max(17, stages), stages);
  for (int layers = 1; layers <= 24; ++layers)
    for (int stages = 1; stages <= layers; ++stages) shapes.emplace_back(layers, stages);
  for (uint64_t i = 0; i < 20; ++i) {
    const auto stages = static_cast<int>(checker.draw_between(100 + i, 1, 300));
    shapes.emplace_back(checker.draw_between(200 + i, stages, 20'000), stages);
  }
  const auto found = checker.in_child([&] {
    std::vector<std::vector<LayerRange>> all;
    for (const auto& [layers, stages] : shapes) {
      auto& ranges = all.emplace_back();
      for (int stage = 0; stage < stages; ++stage) {
        tell_progress(fmt::format("layers_of({}, {}, {})", layers, stage, stages));
        ranges.push_back(seam.layers_of(layers, stage, stages));
      }
    }
    return all;
  });
  for (size_t i = 0; i < shapes.size(); ++i) expect_partition(checker, shapes[i].first, found[i]);
  checker.proved("every layer is on one stage, and no stage has more than one layer more than another");
}

/// A stage as make_stage made it.
struct Made {
  LayerRange range;
  std::vector<Tensor> weights;
  std::vector<Tensor> again;     ///< Of a second one, made after the first one's weights were changed.
  bool wants_gradients = false;  ///< Every weight is a leaf that wants one.
};

void expect_made(Checker& checker, const Made& made, const std::string& where) {
  const int count = made.range.end - made.range.begin;
  checker.expect(
      std::ssize(made.weights) == 2 * count, "wrong number of layers",
      fmt::format("{} has {}, expected {}: {} to {}", where, counted(std::ssize(made.weights) / 2, "layer"),
                  count, made.range.begin, made.range.end),
      "Make the layers that layers_of gives to this stage, and no others.");
  const auto is_layer = [&](const std::vector<Tensor>& weights, int at, int number) {
    const Layer expected = make_layer(number);
    const auto i = static_cast<size_t>(at) * 2;
    return torch::equal(weights[i], expected.weight) && torch::equal(weights[i + 1], expected.bias);
  };
  for (int i = 0; i < count; ++i) {
    if (is_layer(made.weights, i, made.range.begin + i)) continue;
    const auto what = fmt::format("{}: its layer {} does not have the weights of layer {} of the whole model",
                                  where, i, made.range.begin + i);
    checker.expect(!is_layer(made.weights, i, i), "weights by stage",
                   what + fmt::format(", but those of layer {}", i),
                   "Every stage would start with the weights of the first layers, and nothing could be "
                   "compared with the whole model. Count layers through the whole model: from range.begin to "
                   "range.end.");
    checker.fail("wrong weights", what,
                 "lab::make_layer(number) takes the number in the whole model. A stage has its layers in "
                 "their order.");
  }
  checker.expect(made.wants_gradients, "weights without gradients",
                 where + ": a weight is not a leaf that wants a gradient",
                 "Use the layers as lab::make_layer returns them: a copy of a weight is not a leaf.");
  for (int i = 0; i < count; ++i) {
    checker.expect(std::ssize(made.again) == 2 * count && is_layer(made.again, i, made.range.begin + i),
                   "weights shared",
                   where + ": made a second time it has other weights, after those of the first were changed",
                   "Each call makes layers of its own: keep none from an earlier call.");
  }
}

/// The same weights as in the whole model, however it is cut.
void check_weights(const Seam& seam, Checker& checker) {
  std::vector<std::pair<int, int>> shapes;  // layers, stages
  for (const int stages : checker.worlds({1, 2, 3, 4, 5})) shapes.emplace_back(std::max(17, stages), stages);
  for (const int stages : checker.fresh_worlds(1, 6, 12))
    shapes.emplace_back(checker.draw_between(static_cast<uint64_t>(stages), stages, 40), stages);
  const auto found = checker.in_child([&] {
    const torch::NoGradGuard no_grad;
    std::vector<std::vector<Made>> all;
    for (const auto& [layers, stages] : shapes) {
      auto& row = all.emplace_back();
      for (int s = 0; s < stages; ++s) {
        tell_progress(fmt::format("make_stage({}, {}, {})", layers, s, stages));
        const torch::AutoGradMode as_in_training(true);
        const auto made = seam.make_stage(layers, s, stages);
        auto& one =
            row.emplace_back(Made{seam.layers_of(layers, s, stages), weights_of(made.layers), {}, true});
        for (const auto& layer : made.layers) {
          for (const auto& weight : {layer.weight, layer.bias}) {
            one.wants_gradients = one.wants_gradients && weight.is_leaf() && weight.requires_grad();
            weight.detach().fill_(7);
          }
        }
        one.again = weights_of(seam.make_stage(layers, s, stages).layers);
      }
    }
    return all;
  });
  for (size_t i = 0; i < shapes.size(); ++i) {
    checker.in_world(shapes[i].second);
    for (size_t s = 0; s < found[i].size(); ++s)
      expect_made(checker, found[i][s], fmt::format("stage {} of {}", s, shapes[i].second));
  }
  checker.proved("a layer has the same weights wherever the model is cut");
}

}  // namespace

std::vector<Batch> make_batches(const Checker& checker, uint64_t salt, int steps) {
  std::vector<Batch> batches;
  for (int step = 0; step < steps; ++step) {
    const uint64_t at = 2 * (salt * 10 + static_cast<uint64_t>(step));
    batches.push_back({drawn(checker, at), drawn(checker, at + 1)});
  }
  return batches;
}

std::vector<Tensor> weights_of(const std::vector<Layer>& layers) {
  std::vector<Tensor> all;
  for (const auto& layer : layers) {
    for (const auto& weight : {layer.weight, layer.bias}) all.push_back(weight.detach().clone());
  }
  return all;
}

std::vector<Tensor> gradients_of(const std::vector<Layer>& layers) {
  std::vector<Tensor> all;
  for (const auto& layer : layers) {
    for (const auto& weight : {layer.weight, layer.bias})
      all.push_back(weight.grad().defined() ? weight.grad().clone() : Tensor());
  }
  return all;
}

void learn(std::vector<Layer>& layers) {
  const torch::NoGradGuard no_grad;
  for (auto& layer : layers) {
    for (auto* const weight : {&layer.weight, &layer.bias}) {
      if (!weight->grad().defined()) continue;
      weight->sub_(kRate * weight->grad());
      weight->mutable_grad() = Tensor();
    }
  }
}

std::vector<WholeStep> train_whole(int layers, const std::vector<Batch>& batches) {
  std::vector<Layer> all;
  for (int number = 0; number < layers; ++number) all.push_back(make_layer(number));
  std::vector<WholeStep> steps;
  for (const auto& batch : batches) {
    auto& step = steps.emplace_back();
    step.weights = weights_of(all);
    std::vector<Tensor> values = {batch.input.clone().requires_grad_()};
    for (const auto& layer : all) {
      values.push_back(layer.forward(values.back()));
      values.back().retain_grad();
    }
    const auto loss = torch::mse_loss(values.back(), batch.target);
    loss.backward();
    step.loss = loss.item<float>();
    step.gradients = gradients_of(all);
    for (const auto& value : values) {
      step.activations.push_back(value.detach().clone());
      step.wanted.push_back(value.grad().clone());
    }
    learn(all);
  }
  return steps;
}

bool is_close(const Tensor& found, const Tensor& expected) {
  return found.sizes() == expected.sizes() && largest(found - expected) <= 1e-4 * largest(expected);
}

std::string difference(const Tensor& found, const Tensor& expected) {
  if (found.sizes() != expected.sizes())
    return fmt::format("its shape is {}, expected {}", shape_of(found), shape_of(expected));
  const double factor = ((found * expected).sum() / expected.square().sum()).item<double>();
  if (largest(found) == 0) return "it is zero";
  if (is_close(found, factor * expected)) return fmt::format("it is {:.4g} times what is expected", factor);
  return fmt::format("it differs by up to {:.2g} from what is expected, whose largest number is {:.2g}",
                     largest(found - expected), largest(expected));
}

void expect_partition(Checker& checker, int layers, const std::vector<LayerRange>& ranges) {
  const auto stages = std::ssize(ranges);
  checker.in_world(static_cast<int>(stages));
  std::string found = fmt::format("{} in {}:", counted(layers, "layer"), counted(stages, "stage"));
  int next = 0, least = layers, most = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const auto [begin, end] = ranges[static_cast<size_t>(stage)];
    if (stage >= 12 && begin == next && end > begin && stage + 1 < stages) {
      found += stage == 12 ? ", ..." : "";
    } else {
      found += fmt::format("{} stage {} has {} to {}", stage == 0 ? "" : ",", stage, begin, end);
    }
    checker.expect(
        stages == 1 || begin != 0 || end != layers, "model not cut", found + ", which is all of it",
        "Every stage would hold the whole model: nothing is gained. Give each its own part, from `begin` "
        "on and up to `end`, without that one.");
    checker.expect(begin >= next || begin < 0, "layer on two stages",
                   fmt::format("{}; layer {} is there twice", found, begin),
                   "A stage begins where the one before it ended.");
    checker.expect(begin <= next, "layers dropped", fmt::format("{}; layer {} is on no stage", found, next),
                   "A stage begins where the one before it ended.");
    checker.expect(begin >= 0 && end > begin && end <= layers, "no such layers", found,
                   "Each stage has one layer or more, and layers go from 0 to layers - 1.");
    next = end;
    least = std::min(least, end - begin);
    most = std::max(most, end - begin);
  }
  checker.expect(
      next == layers, "layers dropped",
      fmt::format("{}; {} of {} layers, from {} on, are on no stage", found, layers - next, layers, next),
      "layers / stages is rounded down. The remainder, layers % stages, must be somewhere: that many "
      "stages have one layer more.");
  checker.expect(
      most - least <= 1, "uneven stages", found,
      "The stage with the most layers sets the pace and needs the most memory. Do not put the whole "
      "remainder on one: numbers of layers differ by one at most.");
}

void expect_gradients(Checker& checker, const std::vector<Tensor>& found, const WholeStep& whole, int first,
                      const std::string& where, const Failure& missing) {
  for (size_t i = found.size(); i-- > 0;) {
    const size_t at = static_cast<size_t>(first) * 2 + i;
    const auto name = fmt::format("{}, layer {}, {}", where, at / 2, at % 2 == 0 ? "weight" : "bias");
    checker.expect(found[i].defined(), missing.name, name + ": has no gradient", missing.meaning);
    if (is_close(found[i], whole.gradients[at])) continue;
    checker.fail("wrong gradient",
                 fmt::format("{}: the gradient is not the whole model's: {}", name,
                             difference(found[i], whole.gradients[at])),
                 "What a stage's backward starts from must be the gradient of its own output: the next "
                 "stage's input.grad(), or on the last stage the gradient of the loss.");
  }
}

void check_layers(const Seam& seam, Checker& checker) {
  check_partition(seam, checker);
  check_weights(seam, checker);
}

}  // namespace lab::stages
