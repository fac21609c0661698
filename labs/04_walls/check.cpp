#include "04_walls/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "04_walls/measured.h"

namespace lab::walls {

namespace {

using Widths = std::vector<int64_t>;

/// Of what was found and what is right.
bool same(double a, double b, double tolerance = 1e-9) {
  return std::isfinite(a) && std::abs(a - b) <= tolerance * std::abs(b);
}

std::string text_of(const Widths& widths) {
  return widths.size() > 5 ? fmt::format("{} times {}", widths.size(), widths[0])
                           : fmt::format("{}", fmt::join(widths, "-"));
}

/// What a function of the learner's returned for each case, asked in order and then backwards.
template <typename Answer>
struct Answers {
  std::vector<Answer> first, again;
};

template <typename Case, typename Function>
auto ask(Checker& checker, const char* name, const std::vector<Case>& cases, const Function& function) {
  using Answer = decltype(function(cases[0]));
  checker.in_part(name);
  auto answers = checker.in_child([&] {
    Answers<Answer> all;
    tell_progress(name);
    for (const auto& one : cases) all.first.push_back(function(one));
    for (auto one = cases.rbegin(); one != cases.rend(); ++one)
      all.again.insert(all.again.begin(), function(*one));
    return all;
  });
  checker.in_part("");
  for (size_t i = 0; i < cases.size(); ++i) {
    checker.expect(std::memcmp(&answers.first[i], &answers.again[i], sizeof(Answer)) == 0, "not reproducible",
                   fmt::format("{} returned two values for the same arguments (case {})", name, i + 1),
                   "Does a static or global variable keep something from call to call? Or is one used before "
                   "it has a value?");
  }
  return answers.first;
}

/// Refuses a count of which only the lower bits are left.
void expect_whole(Checker& checker, int64_t found, int64_t expected, const std::string& what) {
  const auto is = [&](auto narrow) {
    return static_cast<int64_t>(static_cast<decltype(narrow)>(expected)) == found;
  };
  const int bits = is(int8_t{}) || is(uint8_t{})     ? 8
                   : is(int16_t{}) || is(uint16_t{}) ? 16
                   : is(int32_t{}) || is(uint32_t{}) ? 32
                                                     : 0;
  if (found == expected || found == 0 || bits == 0) return;
  checker.fail(
      "overflow", what,
      fmt::format("These are the lower {} bits of the right number: somewhere it passes through a type "
                  "that is too small. Compute in std::int64_t throughout.",
                  bits));
}

void check_parameters(const Seam& seam, Checker& checker) {
  std::vector<Widths> cases = {{3, 5}, {4, 4, 4}, {784, 256, 128, 10}, Widths(17, 1024), {6}};
  const auto drawn = [&](uint64_t salt) { return checker.draw_between(salt, 2, 500); };
  cases.push_back({drawn(1), drawn(2), 7});
  cases.push_back(Widths(static_cast<size_t>(checker.draw_between(3, 20, 300)), drawn(4)));
  cases.push_back({drawn(5) + 70'000, drawn(6) + 80'000, drawn(7)});  // above 2^32
  cases.push_back({drawn(8) + 5'000'000'000, drawn(9)});
  const auto found = ask(checker, "parameter_count", cases,
                         [&](const Widths& widths) { return seam.parameter_count(widths); });
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& widths = cases[i];
    int64_t products = 0, biases = 0, inputs = 0;
    for (size_t k = 0; k + 1 < widths.size(); ++k) {
      products += widths[k] * widths[k + 1];
      biases += widths[k + 1];
      inputs += widths[k];
    }
    const int64_t expected = products + biases;
    if (found[i] == expected) continue;
    const auto what = fmt::format("widths {}: parameter_count returned {}, expected {}", text_of(widths),
                                  found[i], expected);
    expect_whole(checker, found[i], expected, what);
    checker.expect(
        found[i] != 0, "nothing counted", what,
        "A layer from n inputs to m outputs has a matrix of n * m weights, and a bias for each output.");
    checker.expect(
        found[i] != products, "bias forgotten", what,
        fmt::format("The matrices alone have {}. Each layer has a bias, too: one number for each of "
                    "its outputs, {} in all.",
                    products, biases));
    checker.expect(found[i] != products + inputs, "bias of the inputs", what,
                   "A bias is added to the outputs of a layer: one for each output.");
    checker.fail("wrong count", what,
                 "Add, over all layers, inputs * outputs for the matrix and outputs for the bias. There is "
                 "one layer less than there are widths.");
  }
  checker.proved("parameters of any multilayer perceptron, biases among them, to the last one");
}

void check_model_memory(const Seam& seam, Checker& checker) {
  std::vector<std::pair<int64_t, int>> cases = {
      {1000, 32}, {1000, 16}, {10'000'000'000, 32}, {checker.draw_between(11, 1, 1'000'000), 64}};
  cases.emplace_back(checker.draw_between(12, 600'000'000, 900'000'000'000), 32);
  cases.emplace_back(checker.draw_between(13, 1'200'000'000, 900'000'000'000), 16);
  cases.emplace_back(checker.draw_between(14, 1, 9'000'000'000), 8);
  const auto all = ask(checker, "model_memory", cases,
                       [&](const auto& one) { return seam.model_memory(one.first, one.second); });
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [parameters, bits] = cases[i];
    const Memory& found = all[i];
    const int64_t one = parameters * bits / 8;
    const auto what = fmt::format(
        "{} parameters of {} bits: weights {}, gradients {}, optimizer {} bytes; expected {}, {} and {}",
        parameters, bits, found.weights, found.gradients, found.optimizer, one, one, 2 * one);
    checker.expect(found.total() != 0, "nothing counted", what,
                   "Start with the weights: parameters times the bytes of a number.");
    checker.expect(found.weights != parameters * bits, "bits for bytes", what,
                   "A byte has 8 bits: a number of 32 bits takes 4 bytes.");
    expect_whole(checker, found.weights, one, what);
    expect_whole(checker, found.gradients, one, what);
    expect_whole(checker, found.optimizer, 2 * one, what);
    checker.expect(found.weights >= 0, "overflow", what,
                   "A product did not fit into its type. Compute in std::int64_t throughout.");
    checker.expect(found.weights == one, "wrong weights", what,
                   "Parameters times the bytes of a number, bits / 8.");
    checker.expect(
        found.gradients != 0 || found.optimizer != 0, "only the weights", what,
        "That is enough to use the model, not to train it: every weight has a gradient, and Adam keeps two "
        "numbers more for each.");
    checker.expect(found.gradients == one, found.gradients == 0 ? "gradients forgotten" : "wrong gradients",
                   what, "Every weight has a gradient, as large as itself.");
    checker.expect(
        found.optimizer == 2 * one, "Adam's moments", what,
        "Adam keeps two numbers for each weight: a mean of its gradient, and a mean of the square.");
  }
  checker.proved("weights, gradients and Adam's two moments: 16 bytes for each parameter in fp32");
}

struct Batch {
  Widths widths;
  int64_t batch = 0;
  int bits = 0;
};

void check_activations(const Seam& seam, Checker& checker) {
  std::vector<Batch> cases = {{{3, 5, 2}, 7, 32}, {Widths(17, 1024), 1'000'000, 32}, {{8, 8}, 2, 16}};
  const auto drawn = [&](uint64_t salt) { return checker.draw_between(salt, 2, 900); };
  cases.push_back({{drawn(21), drawn(22), drawn(23), drawn(24)}, 2 * drawn(25) + 1, 64});
  cases.push_back({{drawn(26) + 5000, drawn(27)}, drawn(28) + 3'000'000, 16});
  cases.push_back({{drawn(29) + 2'000'000'000, drawn(30) + 2'000'000'000, 3}, 2, 8});
  cases.push_back({{3, drawn(35)}, drawn(36) + 5'000'000'000, 8});
  const auto all = ask(checker, "activation_bytes", cases, [&](const Batch& one) {
    return seam.activation_bytes(one.widths, one.batch, one.bits);
  });
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [widths, batch, bits] = cases[i];
    int64_t sum = 0;
    for (const int64_t width : widths) sum += width;
    const int64_t found = all[i], expected = sum * batch * bits / 8;
    if (found == expected) continue;
    const auto what = fmt::format("widths {}, batch {}, {} bits: activation_bytes returned {}, expected {}",
                                  text_of(widths), batch, bits, found, expected);
    expect_whole(checker, found, expected, what);
    checker.expect(found >= 0, "overflow", what,
                   "A sum or a product did not fit into its type. Compute in std::int64_t throughout.");
    checker.expect(found != expected * 8, "bits for bytes", what, "A byte has 8 bits.");
    checker.expect(found != sum * bits / 8, "batch forgotten", what,
                   "Every sample of the batch has activations of its own.");
    checker.expect(found != (sum - widths[0]) * batch * bits / 8, "input forgotten", what,
                   "The first layer needs its input again in backward: it is kept like all others.");
    checker.fail("wrong activations", what,
                 "Add up all widths (the input and every layer's output); times the batch, times the bytes "
                 "of a number.");
  }
  checker.proved("activations grow with the batch, the model does not");
}

void check_gigabytes(const Seam& seam, Checker& checker) {
  const std::vector<int64_t> cases = {40'000'000'000, 500'000'000, 1,
                                      checker.draw_between(31, 1, 999'999'999),
                                      checker.draw_between(32, 3'000'000'000, 900'000'000'000)};
  const auto all = ask(checker, "gigabytes", cases, [&](int64_t bytes) { return seam.gigabytes(bytes); });
  for (size_t i = 0; i < cases.size(); ++i) {
    const double expected = static_cast<double>(cases[i]) / 1e9, found = all[i];
    if (same(found, expected)) continue;
    const auto what =
        fmt::format("{} bytes: gigabytes returned {:.10g}, expected {:.10g}", cases[i], found, expected);
    checker.expect(
        !same(found, static_cast<double>(cases[i]) / 1073741824.0, 1e-6), "wrong gigabyte", what,
        "2^30 bytes are a gibibyte (GiB), 7% more than a gigabyte. Both are in use, and mixing them "
        "makes 40 GB into 37. Here one GB is 10^9 bytes.");
    checker.expect(!same(found, expected, 1e-6), "rounded", what,
                   "Nearly right: a float has 7 digits. Divide as doubles.");
    checker.expect(found != std::floor(expected), "rounded", what,
                   "Divide as doubles: a division of integers loses the fraction.");
    checker.expect(!same(found, static_cast<double>(static_cast<int32_t>(cases[i])) / 1e9), "overflow", what,
                   "So many bytes do not fit into an int. Convert to double, then divide.");
    checker.fail("wrong gigabyte", what, "One GB is 10^9 bytes.");
  }
  checker.proved("bytes in gigabytes of 10^9 bytes, fractions too");
}

struct Estimate {
  Memory model;
  int64_t activations = 0;
};

/// The estimate against what an allocator counted while a real net was trained.
void check_measured(const Seam& seam, Checker& checker) {
  checker.note(fmt::format("{:<50} {:>10} {:>10}", "a real net, trained for 2 steps; KB of 10^3 bytes",
                           "estimated", "measured"));
  const Widths drawn(static_cast<size_t>(checker.draw_between(41, 12, 20)), checker.draw_between(42, 33, 70));
  const std::vector<Batch> cases = {{Widths(17, 64), 32, 32},
                                    {Widths(17, 64), 128, 32},
                                    {{784, 128, 64, 10}, 64, 32},
                                    {drawn, checker.draw_between(43, 21, 120), 32}};
  const auto estimates = ask(checker, "the estimate", cases, [&](const Batch& one) {
    return Estimate{seam.model_memory(seam.parameter_count(one.widths), one.bits),
                    seam.activation_bytes(one.widths, one.batch, one.bits)};
  });
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [widths, batch, bits] = cases[i];
    const auto& [model, activations] = estimates[i];
    const auto measured = train_and_measure(widths, batch, 2);
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

using Work6 = std::array<double, 3>;  // parameters, samples, operations a second

void check_days(const Seam& seam, Checker& checker) {
  const auto drawn = [&](uint64_t salt, double unit) {
    return unit * static_cast<double>(checker.draw_between(salt, 11, 997));
  };
  const std::vector<Work6> cases = {{1e9, 2e10, 3e13},
                                    {1e10, 2e11, 3e13},
                                    {1.68e7, 1e9, 1.3e13},
                                    {drawn(51, 1e3), drawn(52, 1e2), drawn(53, 1)},
                                    {drawn(57, 1), drawn(58, 1), drawn(59, 1e3)},
                                    {drawn(54, 1e9), drawn(55, 1e10), drawn(56, 1e12)}};
  const auto all = ask(checker, "days_to_train", cases,
                       [&](const Work6& one) { return seam.days_to_train(one[0], one[1], one[2]); });
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [parameters, samples, flops] = cases[i];
    const double found = all[i], expected = 6 * parameters * samples / flops / 86400;
    if (same(found, expected)) continue;
    const auto what = fmt::format(
        "{:g} parameters, {:g} samples, {:g} operations a second: days_to_train returned {:.10g}, expected "
        "{:.10g}",
        parameters, samples, flops, found, expected);
    const auto is = [&](double factor) { return same(found, expected * factor, 1e-6); };
    checker.expect(
        !is(1.0 / 3), "backward forgotten", what,
        "2 operations for each parameter and sample are the forward alone. Backward takes 4 more.");
    checker.expect(
        !is(2.0 / 3), "forward forgotten", what,
        "4 operations for each parameter and sample are the backward alone. Forward takes 2 more.");
    checker.expect(!is(86400), "seconds for days", what, "A day has 24 * 60 * 60 seconds.");
    checker.expect(!is(24), "hours for days", what, "A day has 24 * 60 * 60 seconds.");
    checker.expect(
        !is(1) && found != std::floor(expected) && found != std::floor(expected * 86400) / 86400, "rounded",
        what, "Nearly right: digits were lost on the way. Compute in double throughout, and do not round.");
    checker.fail(
        "wrong time", what,
        "6 operations for each parameter and each sample; over the operations that the GPU does in a second; "
        "over the seconds of a day.");
  }
  checker.proved("6 N D operations: 2 N D forward, 4 N D backward");
}

using Cards = std::pair<int64_t, int64_t>;  // bytes, bytes of a card

void check_ranks(const Seam& seam, Checker& checker) {
  const int64_t card = 24'000'000'000, other = checker.draw_between(61, 3'000'000'000, 90'000'000'000);
  const int64_t times = checker.draw_between(62, 3, 40), rest = checker.draw_between(63, 2, other - 2);
  const std::vector<Cards> cases = {{160 * (card / 24), card},
                                    {40 * (card / 24), card},
                                    {card, card},
                                    {2 * card, card},
                                    {card + 1, card},
                                    {1, card},
                                    {times * other, other},
                                    {times * other + rest, other},
                                    {times * other + 1, other},
                                    {times * other - 1, other},
                                    {rest, other}};
  const auto all = ask(checker, "ranks_needed", cases,
                       [&](const Cards& one) { return seam.ranks_needed(one.first, one.second); });
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [bytes, of_a_card] = cases[i];
    const int64_t expected = bytes / of_a_card + (bytes % of_a_card > 0 ? 1 : 0), found = all[i];
    checker.expect(found == expected, found < expected ? "does not fit" : "too many cards",
                   fmt::format("{} bytes on cards of {}: ranks_needed returned {}, expected {}", bytes,
                               of_a_card, found, expected),
                   found == bytes / of_a_card
                       ? "Rounded down, or a digit was lost: a rest of one byte needs a card as well."
                   : bytes % of_a_card == 0 && found == expected + 1
                       ? "What fits exactly needs no further card."
                       : "The bytes over the bytes of one card, rounded up, in 64-bit integers.");
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
  checker.in_child([&] { note_table(seam, checker); });
}

}  // namespace lab::walls
