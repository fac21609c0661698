#include "04_walls/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "04_walls/measured.h"

namespace lab::walls {

namespace {

using Widths = std::vector<int64_t>;

bool same(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

std::string text_of(const Widths& widths) {
  return fmt::format("{}", fmt::join(widths, "-"));
}

void check_parameters(const Seam& seam, Checker& checker) {
  const auto drawn = static_cast<int64_t>(2 + checker.draw(1) % 30);
  for (const Widths& widths : {Widths{3, 5}, Widths{4, 4, 4}, Widths{784, 256, 128, 10}, Widths(17, 1024),
                               Widths{drawn, 2 * drawn + 1, 7}, Widths{6}}) {
    int64_t products = 0, biases = 0, inputs = 0;
    for (size_t k = 0; k + 1 < widths.size(); ++k) {
      products += widths[k] * widths[k + 1];
      biases += widths[k + 1];
      inputs += widths[k];
    }
    const int64_t told = seam.parameter_count(widths), expected = products + biases;
    if (told == expected) continue;
    const auto what =
        fmt::format("widths {}: parameter_count says {}, expected {}", text_of(widths), told, expected);
    if (told == 0) {
      checker.fail(
          "nothing counted", what,
          "A layer from n inputs to m outputs has a matrix of n * m weights, and a bias for each output.");
    }
    if (told == products) {
      checker.fail(
          "bias forgotten", what,
          fmt::format("The matrices alone have {}. Each layer has a bias, too: one number for each of its "
                      "outputs, {} in all.",
                      products, biases));
    }
    if (told == products + inputs) {
      checker.fail("bias of the inputs", what,
                   "A bias is added to the outputs of a layer: one for each output.");
    }
    checker.fail("wrong count", what,
                 "Add, over all layers, inputs * outputs for the matrix and outputs for the bias. There is "
                 "one layer less "
                 "than there are widths.");
  }
  checker.proved("parameters of any multilayer perceptron, biases among them, to the last one");
}

void check_model_memory(const Seam& seam, Checker& checker) {
  for (const auto& [parameters, bits] :
       {std::pair{int64_t{10'000'000'000}, 32}, {int64_t{1000}, 32}, {int64_t{1000}, 16}}) {
    const Memory told = seam.model_memory(parameters, bits);
    const int64_t one = parameters * bits / 8;
    const auto what = fmt::format(
        "{} parameters of {} bits: weights {}, gradients {}, optimizer {} bytes; expected {}, {} and {}",
        parameters, bits, told.weights, told.gradients, told.optimizer, one, one, 2 * one);
    checker.expect(told.total() != 0, "nothing counted", what,
                   "Start with the weights: parameters times the bytes of a number.");
    checker.expect(told.weights != parameters * bits, "bits for bytes", what,
                   "A byte has 8 bits: a number of 32 bits takes 4 bytes.");
    checker.expect(
        told.weights >= 0, "overflow", what,
        "10 billion does not fit into an int, nor do 40 billion bytes: reckon with std::int64_t throughout.");
    checker.expect(told.weights == one, "wrong weights", what,
                   "Parameters times the bytes of a number, bits / 8.");
    if (told.gradients == 0 && told.optimizer == 0) {
      checker.fail(
          "only the weights", what,
          "That is enough to use the model, not to train it: every weight has a gradient, and Adam keeps two "
          "numbers more for each.");
    }
    checker.expect(told.gradients == one, "gradients forgotten", what,
                   "Every weight has a gradient, as large as itself.");
    checker.expect(
        told.optimizer == 2 * one, "Adam's moments", what,
        "Adam keeps two numbers for each weight: a mean of its gradient, and a mean of the square.");
  }
  checker.proved("weights, gradients and Adam's two moments: 16 bytes for each parameter in fp32");
}

void check_activations(const Seam& seam, Checker& checker) {
  for (const auto& [widths, batch, bits] : {std::tuple{Widths{3, 5, 2}, int64_t{7}, 32},
                                            {Widths(17, 1024), int64_t{1'000'000}, 32},
                                            {Widths{8, 8}, int64_t{2}, 16}}) {
    int64_t sum = 0;
    for (const int64_t width : widths) sum += width;
    const int64_t told = seam.activation_bytes(widths, batch, bits), expected = sum * batch * bits / 8;
    if (told == expected) continue;
    const auto what = fmt::format("widths {}, batch {}, {} bits: activation_bytes says {}, expected {}",
                                  text_of(widths), batch, bits, told, expected);
    checker.expect(told != expected * 8, "bits for bytes", what, "A byte has 8 bits.");
    checker.expect(told != sum * bits / 8, "batch forgotten", what,
                   "Every sample of the batch has activations of its own.");
    checker.expect(told != (sum - widths[0]) * batch * bits / 8, "input forgotten", what,
                   "The first layer needs its input again in backward: it is kept like all others.");
    checker.fail("wrong activations", what,
                 "Add up all widths (the input and every layer's output); times the batch, times the bytes "
                 "of a number.");
  }
  checker.proved("activations grow with the batch, the model does not");
}

void check_gigabytes(const Seam& seam, Checker& checker) {
  const int64_t bytes = 40'000'000'000;
  const double told = seam.gigabytes(bytes);
  const auto what = fmt::format("{} bytes: gigabytes says {:.4g}, expected 40", bytes, told);
  checker.expect(!same(told, static_cast<double>(bytes) / 1073741824.0), "wrong gigabyte", what,
                 "2^30 bytes are a gibibyte (GiB), 7% more than a gigabyte. Both are in use, and mixing them "
                 "makes 40 GB into "
                 "37. Here one GB is 10^9 bytes.");
  checker.expect(same(told, 40), "wrong gigabyte", what, "One GB is 10^9 bytes.");
  checker.expect(same(seam.gigabytes(500'000'000), 0.5), "wrong gigabyte",
                 fmt::format("500000000 bytes: gigabytes says {}, expected 0.5", seam.gigabytes(500'000'000)),
                 "Divide as doubles: whole numbers lose what is behind the point.");
}

/// The estimate against what an allocator counted while a real net was trained.
void check_measured(const Seam& seam, Checker& checker) {
  checker.note(fmt::format("{:<50} {:>10} {:>10}", "a real net, trained for 2 steps; KB of 10^3 bytes",
                           "estimated", "measured"));
  for (const auto& [widths, batch] : {std::pair{Widths(17, 64), int64_t{32}},
                                      {Widths(17, 64), int64_t{128}},
                                      {Widths{784, 128, 64, 10}, int64_t{64}}}) {
    tell_progress("training " + text_of(widths));
    const auto measured = train_and_measure(widths, batch, 2);
    const auto model = seam.model_memory(seam.parameter_count(widths), 32);
    const int64_t activations = seam.activation_bytes(widths, batch, 32);
    const std::string net =
        widths.size() > 5 ? fmt::format("{} layers of {}", widths.size() - 1, widths[0]) : text_of(widths);
    const auto line = [&](const char* name, int64_t estimated, int64_t found) {
      checker.note(fmt::format("{:<27} {:<22} {:>10.1f} {:>10.1f}", fmt::format("{}, batch {}", net, batch),
                               name, static_cast<double>(estimated) / 1e3, static_cast<double>(found) / 1e3));
      checker.expect(std::abs(static_cast<double>(estimated - found)) <= 0.1 * static_cast<double>(found),
                     "off by more than 10%",
                     fmt::format("{}, batch {}: {} estimated at {} bytes, the allocator counted {}", net,
                                 batch, name, estimated, found),
                     "Which of the parts does not fit? Those above it did.");
    };
    line("weights", model.weights, measured.model.weights);
    line("gradients", model.gradients, measured.model.gradients);
    line("Adam's moments", model.optimizer, measured.model.optimizer);
    line("activations", activations, measured.activations);
    line("all, at its peak", model.total() + activations, measured.peak);
  }
  checker.proved("your estimate is within 10% of what a real training run allocated");
}

void check_days(const Seam& seam, Checker& checker) {
  for (const auto& [parameters, samples, flops] :
       {std::tuple{1e9, 2e10, 3e13}, {1e10, 2e11, 3e13}, {1.68e7, 1e6 * 1000, 1e13}}) {
    const double told = seam.days_to_train(parameters, samples, flops);
    const double expected = 6 * parameters * samples / flops / 86400;
    if (same(told, expected)) continue;
    const auto what = fmt::format(
        "{:g} parameters, {:g} samples, {:g} operations a second: days_to_train says {:.4g}, "
        "expected {:.4g}",
        parameters, samples, flops, told, expected);
    checker.expect(
        !same(told, expected / 3), "backward forgotten", what,
        "2 operations for each parameter and sample are the forward alone. Backward takes 4 more.");
    checker.expect(!same(told, expected * 86400), "seconds for days", what,
                   "A day has 24 * 60 * 60 seconds.");
    checker.expect(!same(told, expected * 24), "hours for days", what, "A day has 24 * 60 * 60 seconds.");
    checker.fail(
        "wrong time", what,
        "6 operations for each parameter and each sample; over the operations that the GPU does in a second; "
        "over the seconds of a day.");
  }
  checker.proved("6 N D operations: 2 N D forward, 4 N D backward");
}

void check_ranks(const Seam& seam, Checker& checker) {
  const int64_t card = 24'000'000'000;
  for (const auto& [bytes, expected] : {std::pair{160 * (card / 24), int64_t{7}},
                                        {40 * (card / 24), int64_t{2}},
                                        {card, int64_t{1}},
                                        {2 * card, int64_t{2}},
                                        {card + 1, int64_t{2}},
                                        {int64_t{1}, int64_t{1}}}) {
    const int64_t told = seam.ranks_needed(bytes, card);
    checker.expect(told == expected, told < expected ? "does not fit" : "one card too many",
                   fmt::format("{} bytes on cards of {}: ranks_needed says {}, expected {}", bytes, card,
                               told, expected),
                   told < expected ? "Division of whole numbers rounds down; the rest needs a card as well."
                                   : "What fits exactly needs no further card.");
  }
  checker.proved("10 billion parameters in training need 7 cards of 24 GB; their weights alone need 2");
}

/// The lesson's table, with the learner's numbers.
void note_table(const Seam& seam, Checker& checker) {
  const int64_t card = 24'000'000'000;
  const auto gb = [&](int64_t bytes) { return seam.gigabytes(bytes); };
  const Widths mlp(17, 1024);
  const auto small = seam.model_memory(seam.parameter_count(mlp), 32);
  const int64_t one_million = seam.activation_bytes(mlp, 1'000'000, 32);
  const auto big = seam.model_memory(10'000'000'000, 32);
  checker.note("the walls, with your numbers; a card of 24 GB that does 30 TFLOP/s:");
  checker.note(fmt::format(
      "  16 layers of 1024, {} parameters: model {:.2f} GB, batch of 1 million samples {:.1f} GB on top: {} "
      "cards",
      seam.parameter_count(mlp), gb(small.total()), gb(one_million),
      seam.ranks_needed(one_million, card - small.total())));
  checker.note(
      fmt::format("  1 billion parameters, 20 billion samples: {:.1f} days on one card, {:.1f} on 16",
                  seam.days_to_train(1e9, 2e10, 3e13), seam.days_to_train(1e9, 2e10, 16 * 3e13)));
  checker.note(fmt::format(
      "  10 billion parameters in fp32: {:.0f} GB of weights > 24 GB; {:.0f} GB in training: {} cards",
      gb(big.weights), gb(big.total()), seam.ranks_needed(big.total(), card)));
}

}  // namespace

void check(const Seam& seam, Checker& checker) {
  check_parameters(seam, checker);
  check_model_memory(seam, checker);
  check_activations(seam, checker);
  check_gigabytes(seam, checker);
  check_measured(seam, checker);
  check_days(seam, checker);
  check_ranks(seam, checker);
  note_table(seam, checker);
}

}  // namespace lab::walls
