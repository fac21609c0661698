#include "18_stages/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lab::stages {

namespace {

using torch::Tensor;

constexpr int kLayers = 17;
constexpr int kSteps = 3;
constexpr double kRate = 0.05;

/// A stage for each rank, and a layer for each stage.
std::vector<int> worlds(const Checker& checker) {
  auto all = checker.worlds({1, 2, 3, 4, 5});
  for (int& stages : all) stages = std::min(stages, kLayers);
  return all;
}

/// The batch: numbers between -1 and 1.
Tensor drawn(const Checker& checker, uint64_t salt) {
  auto values = torch::empty({kBatch, kWidth});
  auto* const data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const uint64_t bits = checker.draw(salt * 1000 + static_cast<uint64_t>(i)) >> 40;
    data[i] = static_cast<float>(bits) / static_cast<float>(1 << 23) - 1;
  }
  return values;
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

/// Of each layer, copied: gradients of weight and bias; undefined where there is none.
std::vector<Tensor> gradients_of(const std::vector<Layer>& layers) {
  std::vector<Tensor> all;
  for (const auto& layer : layers) {
    for (const auto& weight : {layer.weight, layer.bias})
      all.push_back(weight.grad().defined() ? weight.grad().clone() : Tensor());
  }
  return all;
}

bool is_close(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && torch::allclose(a, b, 1e-4, 1e-6);
}

/// The whole model in one process: what all ways to cut it are compared with.
struct Whole {
  std::vector<float> losses;                   ///< By step.
  std::vector<std::vector<Tensor>> gradients;  ///< By step; weight and bias of each layer.
};

Whole train_whole(const Tensor& input, const Tensor& target) {
  std::vector<Layer> layers;
  for (int number = 0; number < kLayers; ++number) layers.push_back(make_layer(number));
  Whole whole;
  for (int step = 0; step < kSteps; ++step) {
    Tensor x = input;
    for (const auto& layer : layers) x = layer.forward(x);
    const auto loss = torch::mse_loss(x, target);
    loss.backward();
    whole.losses.push_back(loss.item<float>());
    whole.gradients.push_back(gradients_of(layers));
    learn(layers);
  }
  return whole;
}

void check_partition(const Seam& seam, Checker& checker) {
  struct Shape {
    int layers, stages;
  };
  std::vector<Shape> shapes;
  for (const int stages : worlds(checker)) shapes.push_back({kLayers, stages});
  shapes.insert(shapes.end(), {{16, 4}, {5, 5}, {7, 3}, {1, 1}, {100, 8}});
  for (const auto& [layers, stages] : shapes) {
    checker.in_world(stages);
    std::string found = fmt::format("{} layers in {} stage{}:", layers, stages, stages == 1 ? "" : "s");
    int next = 0, least = layers, most = 0;
    for (int stage = 0; stage < stages; ++stage) {
      tell_progress(fmt::format("layers_of({}, {}, {})", layers, stage, stages));
      const auto [begin, end] = seam.layers_of(layers, stage, stages);
      found += fmt::format("{} stage {} has {} to {}", stage == 0 ? "" : ",", stage, begin, end);
      checker.expect(
          stages == 1 || begin != 0 || end != layers, "model not cut", found + ", which is all of it",
          "Every stage would hold the whole model: nothing is gained. Give each its own part, from `begin` "
          "on and up to `end`, without that one.");
      checker.expect(begin >= next, "layer on two stages",
                     fmt::format("{}; layer {} is there twice", found, begin),
                     "A stage begins where the one before it ended.");
      checker.expect(begin == next, "layers dropped", fmt::format("{}; layer {} is on no stage", found, next),
                     "A stage begins where the one before it ended.");
      checker.expect(end > begin && end <= layers, "no such layers", found,
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
  checker.proved("every layer is on one stage, and no stage has more than one layer more than another");
}

/// The same weights as in the whole model, however it is cut.
void check_weights(const Seam& seam, Checker& checker) {
  const auto is_layer = [](const Layer& layer, int number) {
    const Layer expected = make_layer(number);
    return torch::equal(layer.weight, expected.weight) && torch::equal(layer.bias, expected.bias);
  };
  for (const int stages : worlds(checker)) {
    checker.in_world(stages);
    for (int stage = 0; stage < stages; ++stage) {
      const auto [begin, end] = seam.layers_of(kLayers, stage, stages);
      tell_progress(fmt::format("make_stage({}, {}, {})", kLayers, stage, stages));
      const auto made = seam.make_stage(kLayers, stage, stages);
      checker.expect(std::ssize(made.layers) == end - begin, "wrong number of layers",
                     fmt::format("stage {} of {} has {} layers, expected {}: {} to {}", stage, stages,
                                 made.layers.size(), end - begin, begin, end),
                     "Make the layers that layers_of gives to this stage, and no others.");
      for (int i = 0; i < end - begin; ++i) {
        const auto& layer = made.layers[static_cast<size_t>(i)];
        if (is_layer(layer, begin + i)) continue;
        const auto what = fmt::format(
            "stage {} of {}: its layer {} does not have the weights of layer {} of the whole model", stage,
            stages, i, begin + i);
        checker.expect(
            !is_layer(layer, i), "weights by stage", what + fmt::format(", but those of layer {}", i),
            "Every stage would start with the weights of the first layers, and nothing could be compared "
            "with the whole model. Count layers through the whole model: from range.begin to range.end.");
        checker.fail("wrong weights", what, "lab::make_layer(number) takes the number in the whole model.");
      }
    }
  }
  checker.proved("a layer has the same weights wherever the model is cut");
}

/// Compares with the whole model.
void expect_gradients(Checker& checker, const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                      int first_layer, const std::string& where) {
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t at = static_cast<size_t>(first_layer) * 2 + i;
    const auto name = fmt::format("{}, layer {}, {}", where, at / 2, at % 2 == 0 ? "weight" : "bias");
    checker.expect(
        found[i].defined(), "half learns", name + ": has no gradient",
        "Backward has not come to this layer: the gradient of a stage's input must be handed back to the "
        "stage before it, all the way to the first.");
    if (is_close(found[i], expected[at])) continue;
    checker.fail(
        "wrong gradient",
        fmt::format(
            "{}: the gradient differs by up to {:.3g} from the whole model's, whose largest is {:.3g}", name,
            (found[i] - expected[at]).abs().max().item<float>(), expected[at].abs().max().item<float>()),
        "What a stage's backward starts from must be the gradient of its own output: the next stage's "
        "input.grad(), or on the last stage the gradient of the loss.");
  }
}

/// Two halves in one process: nothing but the hand-over.
void check_by_hand(const Seam& seam, Checker& checker, const Tensor& input, const Tensor& target,
                   const Whole& whole) {
  checker.in_world(0);
  tell_progress("two stages in one process");
  auto first = seam.make_stage(kLayers, 0, 2), second = seam.make_stage(kLayers, 1, 2);
  const int cut = seam.layers_of(kLayers, 0, 2).end;
  Tensor expected = input;
  for (int number = 0; number < cut; ++number) expected = make_layer(number).forward(expected);

  const auto activation = seam.stage_forward(first, input);
  checker.expect(activation.defined() && is_close(activation, expected), "wrong activation",
                 "stage 0 of 2: its forward does not return what its layers make of the input",
                 "Run what arrived through all layers of the stage, one after the other.");
  checker.expect(first.output.defined(), "nothing kept",
                 "stage 0 of 2: after forward stage.output is not defined",
                 "Backward starts from the output: keep it in stage.output.");
  const auto output = seam.stage_forward(second, activation);
  const auto [loss, gradient] = mean_squared_error(output, target);
  checker.expect(std::abs(loss - whole.losses[0]) <= 1e-5F, "wrong loss",
                 fmt::format("two stages one after the other: the loss is {:.6f}, the whole model's {:.6f}",
                             loss, whole.losses[0]),
                 "The second stage's input must be the first stage's output, unchanged.");

  const auto handed_back = seam.stage_backward(second, gradient);
  const auto below = gradients_of(first.layers);
  checker.expect(
      std::none_of(below.begin(), below.end(), [](const Tensor& t) { return t.defined(); }), "graph not cut",
      "backward of stage 1 went on into stage 0: layers there have gradients before anything was handed back",
      "Between two machines there is no graph. Begin each stage's own: arrived.detach() has the same numbers "
      "and no past.");
  const auto above = gradients_of(second.layers);
  checker.expect(
      std::all_of(above.begin(), above.end(), [](const Tensor& t) { return t.defined(); }), "no backward",
      "after backward of stage 1 its own layers have no gradients",
      "stage.output.backward(gradient) goes back through the stage, from the gradient of its output.");
  checker.expect(handed_back.defined(), "no gradient to hand back",
                 "backward of stage 1 returned a tensor that is not defined: its input has no gradient",
                 "A leaf gets a gradient only if it wants one: arrived.detach().requires_grad_(). Keep it in "
                 "stage.input, and return stage.input.grad().");
  expect_gradients(checker, above, whole.gradients[0], cut, "stage 1 of 2");
  seam.stage_backward(first, handed_back);
  expect_gradients(checker, gradients_of(first.layers), whole.gradients[0], 0, "stage 0 of 2");
  checker.proved("two stages in one process: the graph is cut, and the gradient goes over by hand");
}

/// What the ranks found, by stage.
struct Run {
  Report report;
  std::vector<std::vector<float>> losses;                   ///< [rank][step]
  std::vector<std::vector<std::vector<Tensor>>> gradients;  ///< [rank][step]
};

Run run(const Seam& seam, Checker& checker, WorldOptions options, int steps, const Tensor& input,
        const Tensor& target) {
  const auto stages = static_cast<size_t>(options.world);
  Run found{.report = {}, .losses = std::vector<std::vector<float>>(stages), .gradients = {}};
  found.gradients.resize(stages);
  found.report = checker.run(options, [&](Rank& rank) {
    const int r = rank.rank();
    run_on_clock(rank, [&] {
      auto stage = seam.make_stage(kLayers, r, rank.world_size());
      for (int step = 0; step < steps; ++step) {
        found.losses[static_cast<size_t>(r)].push_back(
            seam.naive_step(rank, stage, r == 0 ? input.clone() : Tensor(),
                            r == rank.world_size() - 1 ? target.clone() : Tensor()));
        found.gradients[static_cast<size_t>(r)].push_back(gradients_of(stage.layers));
        learn(stage.layers);
      }
    });
  });
  return found;
}

bool has_any(const std::vector<Tensor>& gradients) {
  return std::any_of(gradients.begin(), gradients.end(),
                     [](const Tensor& t) { return t.defined() && t.abs().max().item<float>() > 0; });
}

/// Loss and gradients of the whole model, step by step.
void check_parity(const Seam& seam, Checker& checker, const Tensor& input, const Tensor& target,
                  const Whole& whole) {
  for (const int stages : worlds(checker)) {
    const auto last = static_cast<size_t>(stages) - 1;
    const auto found =
        run(seam, checker, {.world = stages, .rendezvous = stages % 2 == 1, .keep_events = false}, kSteps,
            input, target);
    for (size_t step = 0; step < static_cast<size_t>(kSteps); ++step) {
      checker.expect(
          has_any(found.gradients[last][step]), "nothing learns",
          fmt::format("step {}, rank {}: the last stage has no gradients", step, last),
          "Forward, the loss, backward: on the last rank backward starts from the gradient of the loss.");
      checker.expect(
          std::abs(found.losses[last][step] - whole.losses[step]) <= 1e-5F, "wrong loss",
          fmt::format("{} stages, step {}: rank {} returned a loss of {:.6f}, the whole model's is {:.6f}",
                      stages, step, last, found.losses[last][step], whole.losses[step]),
          "The last rank returns the loss of its output. Does each rank run what the rank before sent it?");
      for (size_t r = last; r-- > 0;) {
        checker.expect(
            has_any(found.gradients[r][step]), "half learns",
            fmt::format("{} stages, step {}: stage {} has no gradients, although the last one has; "
                        "its loss may fall all the same",
                        stages, step, r),
            "The graph ends at the cut, and so does backward: only the last stage learns. Send the gradient "
            "of a stage's input to the rank before, which goes on from there.");
      }
      for (int r = 0; r < stages; ++r) {
        expect_gradients(checker, found.gradients[static_cast<size_t>(r)][step], whole.gradients[step],
                         seam.layers_of(kLayers, r, stages).begin,
                         fmt::format("{} stages, step {}, rank {}", stages, step, r));
      }
    }
  }
  checker.note(
      fmt::format("17 layers, 1 to 5 stages: losses of {} steps are {:.6f} {:.6f} {:.6f}, as in one process",
                  kSteps, whole.losses[0], whole.losses[1], whole.losses[2]));
  checker.proved("losses and all gradients are those of the whole model, for 1 to 5 stages and 3 steps");
}

/// One message up and one down for each pair of neighbours.
void check_messages(Checker& checker, const Report& report, int stages) {
  for (int from = 0; from < stages; ++from) {
    for (int to = 0; to < stages; ++to) {
      const int expected = std::abs(from - to) == 1 ? 1 : 0;
      const auto found = report.messages[static_cast<size_t>(from)][static_cast<size_t>(to)];
      checker.expect(found == expected, "wrong messages",
                     fmt::format("{} stages: rank {} sent {} messages to rank {}, expected {}", stages, from,
                                 found, to, expected),
                     "In a step one activation goes to the next rank, and one gradient to the rank before.");
    }
  }
}

void check_utilisation(const Seam& seam, Checker& checker, const Tensor& input, const Tensor& target) {
  std::string table = "stop-and-wait: how long each rank works, of the step's time";
  for (const int stages : worlds(checker)) {
    auto report = run(seam, checker, {.world = stages, .latency_us = 0}, 1, input, target).report;
    check_messages(checker, report, stages);
    std::vector<double> busy(static_cast<size_t>(stages));
    for (auto& event : report.events) {
      if (event.kind != Event::Kind::kCompute) continue;
      auto& own = busy[static_cast<size_t>(event.rank)];
      event.text = own == 0 ? "F" : "B";
      own += event.end_us - event.start_us;
    }
    double sum = 0;
    std::string row;
    for (const double us : busy) {
      sum += us;
      row += fmt::format(" {:4.1f}%", 100 * us / report.time_us);
    }
    const double work = kLayers * (kForwardUs + kBackwardUs);
    checker.expect(std::abs(sum - work) < 1e-9, "work done twice",
                   fmt::format("{} stages: all ranks together worked for {} us, {} layers take {} us", stages,
                               sum, kLayers, work),
                   "Each layer runs forward once and back once in a step.");
    checker.expect(
        report.time_us <= work + 1e-9, "longer than stop and wait",
        fmt::format("{} stages: the step took {} us, its work is {} us", stages, report.time_us, work),
        "Some rank waits although what it needs is there.");
    table += fmt::format("\n  {} stage{}  {}   mean {:4.1f}% = 1/P", stages, stages == 1 ? " " : "s", row,
                         100 * sum / stages / report.time_us);
    if (stages == 4 || worlds(checker).size() == 1) checker.show(std::move(report));
  }
  checker.note(table);
  checker.proved("one rank works at a time: utilisation 1/P on the virtual clock, which lesson 19 mends");
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  run_plainly([&] {
    check_partition(seam, checker);
    check_weights(seam, checker);
    const auto input = drawn(checker, 1), target = drawn(checker, 2);
    const auto whole = train_whole(input, target);
    check_by_hand(seam, checker, input, target, whole);
    check_parity(seam, checker, input, target, whole);
    check_utilisation(seam, checker, input, target);
  });
}

}  // namespace lab::stages
