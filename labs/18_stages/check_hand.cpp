#include <fmt/format.h>

#include <utility>

#include "18_stages/check_whole.h"
#include "lab/tensor_data.h"
#include "lab/torch_guard.h"

namespace lab::stages {

using torch::Tensor;

namespace {

/// Forward and backward of one stage, as they left it.
struct Pass {
  Tensor output;                  ///< As returned.
  bool keeps_output = false;      ///< In stage.output.
  bool went_on = false;           ///< Backward went on into what the stage was given.
  bool is_input_changed = false;  ///< What it was given was written to.
  Tensor handed_back;
  std::vector<Tensor> gradients;
};

/// Gives the stage an activation with a past, as its neighbour in the same process would.
struct Given {
  Tensor past, activation, copy;
  explicit Given(const Tensor& values)
      : past(values.clone().requires_grad_()), activation(past * 1), copy(values.clone()) {}
};

struct Alone {
  std::vector<Pass> passes;  ///< By stage.
  bool keeps_graph = false;  ///< Backward can be run again.
  int64_t grown = 0;         ///< Bytes, in kGrowthSteps passes.
};

constexpr int kStages = 3;

void expect_pass(Checker& checker, const Pass& pass, const LayerRange& range, const WholeStep& whole,
                 const std::string& where) {
  const auto first = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
  checker.expect(
      !pass.is_input_changed, "input changed",
      where + ": stage_forward wrote to the tensor that it was given, or made it want a gradient",
      "What arrived belongs to the caller, and detach() shares its memory. Make a tensor of your own "
      "by detach(), and use no in-place operation on what was there.");
  checker.expect(pass.output.defined() && is_close(pass.output, whole.activations[end]), "wrong activation",
                 fmt::format("{}: what stage_forward returns is not what layers {} to {} make of its input{}",
                             where, range.begin, range.end - 1,
                             pass.output.defined() ? ": " + difference(pass.output, whole.activations[end])
                                                   : ", but not defined"),
                 "Run what arrived through all layers of the stage, one after the other.");
  checker.expect(pass.keeps_output, "nothing kept", where + ": after forward stage.output is not defined",
                 "Backward starts from the output: keep it in stage.output.");
  checker.expect(!pass.went_on, "graph not cut",
                 where + ": backward went on into what the stage was given, the graph of the stage before",
                 "Between two machines there is no graph. Begin each stage's own: arrived.detach() has the "
                 "same numbers and no past.");
  checker.expect(!pass.gradients.empty() && pass.gradients.back().defined(), "no backward",
                 where + ": after stage_backward its last layer has no gradients",
                 "stage.output.backward(gradient) goes back through the stage, from the gradient of its "
                 "output.");
  expect_gradients(
      checker, pass.gradients, whole, range.begin, where,
      {"backward stops", "",
       "Layers after it have gradients. Is something detached between two layers of the stage?"});
  checker.expect(pass.handed_back.defined(), "no gradient to hand back",
                 where + ": backward returned a tensor that is not defined: its input has no gradient",
                 "A leaf gets a gradient only if it wants one: arrived.detach().requires_grad_(). Keep it in "
                 "stage.input, and return stage.input.grad().");
  if (is_close(pass.handed_back, whole.wanted[first])) return;
  checker.expect(!is_close(pass.handed_back, whole.wanted[end]), "wrong gradient handed back",
                 where + ": it returned the gradient of its output, unchanged",
                 "The stage before needs the gradient of this stage's input: stage.input.grad().");
  checker.fail("wrong gradient handed back",
               fmt::format("{}: what stage_backward returns is not the gradient of the stage's input: {}",
                           where, difference(pass.handed_back, whole.wanted[first])),
               "Return stage.input.grad(), the gradient of the leaf at which this stage's graph begins.");
}

/// Whether the stage's graph is still there.
bool keeps_graph(const Stage& stage) {
  if (!stage.output.defined() || !stage.output.requires_grad()) return false;
  try {
    stage.output.backward(torch::ones_like(stage.output));
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

/// Stage by stage, each given the right activation and the right gradient.
Alone run_alone(const Seam& seam, Checker& checker, int layers, const std::vector<WholeStep>& whole) {
  Alone found;
  try {
    for (int s = 0; s < kStages; ++s) {
      auto& pass = found.passes.emplace_back();
      const auto range = seam.layers_of(layers, s, kStages);
      const auto first = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
      auto stage = seam.make_stage(layers, s, kStages);
      const Given given(whole[0].activations[first]);
      tell_progress(fmt::format("stage_forward of stage {} of {}", s, kStages));
      const auto output = seam.stage_forward(stage, given.activation);
      pass.output = output.defined() ? output.clone() : output;
      pass.keeps_output = stage.output.defined();
      if (!pass.keeps_output) return found;
      tell_progress(fmt::format("stage_backward of stage {} of {}", s, kStages));
      pass.handed_back = seam.stage_backward(stage, whole[0].wanted[end].clone());
      pass.is_input_changed = !torch::equal(given.activation, given.copy);
      pass.went_on = given.past.grad().defined();
      pass.gradients = gradients_of(stage.layers);
      if (pass.handed_back.defined()) pass.handed_back = pass.handed_back.clone();
      found.keeps_graph = found.keeps_graph || keeps_graph(stage);
    }
    auto stage = seam.make_stage(layers, 0, kStages);
    const Tensor input = whole[0].activations[0].clone();
    size_t after_warm_up = 0;
    const auto end = static_cast<size_t>(seam.layers_of(layers, 0, kStages).end);
    for (int i = 0; i < 10 + kGrowthSteps; ++i) {
      if (i == 10) after_warm_up = heap_bytes();
      seam.stage_forward(stage, input);
      seam.stage_backward(stage, whole[0].wanted[end]);
      learn(stage.layers);
    }
    found.grown = static_cast<int64_t>(heap_bytes()) - static_cast<int64_t>(after_warm_up);
    found.passes[0].is_input_changed = found.passes[0].is_input_changed || input.requires_grad();
  } catch (const c10::Error& error) {
    const std::string doing = progress().text, text = error.what_without_backtrace();
    if (text.find("undefined") != std::string::npos) {
      checker.fail(
          "undefined tensor", doing + ": LibTorch says: " + text.substr(0, 300),
          "A tensor was used that nobody has set. Set stage.input and stage.output in forward, in this "
          "order, and ask for input.grad() after backward.");
    }
    fail_with_torch(checker, doing, error);
  }
  return found;
}

/// All of a step's stages in one process, each forward before the first backward, in other objects than those
/// that ran forward. Or what was thrown.
struct Together {
  std::vector<std::vector<Pass>> steps;  ///< [step][stage]
  std::string thrown;
};
Together run_together(const Seam& seam, int layers, const std::vector<Batch>& batches) {
  Together found;
  std::vector<Stage> stages;
  try {
    run_plainly([&] {
      for (int s = 0; s < kStages; ++s) stages.push_back(seam.make_stage(layers, s, kStages));
      for (const auto& batch : batches) {
        std::vector<Pass> passes(kStages);
        Tensor value = batch.input;
        for (size_t s = 0; s < kStages; ++s) {
          tell_progress(fmt::format("stage_forward of stage {} of {}, one after the other", s, kStages));
          value = seam.stage_forward(stages[s], value);
          passes[s].output = value.clone();
          passes[s].keeps_output = stages[s].output.defined();
        }
        auto moved = stages;
        std::swap(stages, moved);
        value = mean_squared_error(value, batch.target).gradient;
        for (size_t s = kStages; s-- > 0;) {
          tell_progress(fmt::format("stage_backward of stage {} of {}, one after the other", s, kStages));
          value = seam.stage_backward(stages[s], value);
          passes[s].handed_back = value.defined() ? value.clone() : value;
          passes[s].gradients = gradients_of(stages[s].layers);
        }
        for (auto& stage : stages) learn(stage.layers);
        found.steps.push_back(std::move(passes));
      }
    });
  } catch (const std::exception& error) {
    found.thrown = first_words(error);
  }
  return found;
}

}  // namespace

void check_by_hand(const Seam& seam, Checker& checker) {
  for (const bool is_fresh : {false, true}) {
    const int layers = is_fresh ? static_cast<int>(checker.draw_between(31, 60, 90)) : 17;
    shape() =
        is_fresh ? Shape{checker.draw_between(32, 1, 6) * 2 + 1, checker.draw_between(33, 9, 13)} : Shape{};
    checker.in_world(0);
    const auto batches = make_batches(checker, is_fresh ? 20 : 10, 2);
    const auto whole = train_whole(layers, batches);
    const auto input = fmt::format("{} layers in {} stages, a batch of {}", layers, kStages, shape().batch);
    const auto ranges = checker.in_child([&] {
      std::vector<LayerRange> all;
      for (int s = 0; s < kStages; ++s) all.push_back(seam.layers_of(layers, s, kStages));
      return all;
    });
    expect_partition(checker, layers, ranges);
    checker.in_world(0);
    const auto alone = checker.in_child([&] { return run_alone(seam, checker, layers, whole); });
    for (size_t s = 0; s < alone.passes.size(); ++s)
      expect_pass(checker, alone.passes[s], ranges[s], whole[0], fmt::format("{}, stage {}", input, s));
    checker.expect(!alone.keeps_graph, "graph kept",
                   input + ": after stage_backward the graph could be gone through again",
                   "With retain_graph all activations stay in memory until the next forward. Backward is run "
                   "once: let it free them.");
    checker.expect(alone.grown < 400 * kGrowthSteps, "memory grows",
                   fmt::format("{}: {} passes of stage 0 left {} bytes", input, kGrowthSteps, alone.grown),
                   "Something is kept from each forward or backward, such as a list that is never emptied. A "
                   "stage needs its last input and output alone.");
    const auto together = checker.in_child([&] { return run_together(seam, layers, batches); });
    const std::string shared =
        "Each stage by itself works. Does a stage keep something outside of its lab::Stage, which another "
        "stage or the next step overwrites?";
    checker.expect(together.thrown.empty(), "stages share state",
                   fmt::format("{}, one after the other in one process: {}", input, together.thrown), shared);
    for (size_t step = 0; step < together.steps.size(); ++step) {
      for (size_t s = kStages; s-- > 0;) {
        const auto& pass = together.steps[step][s];
        const auto first = static_cast<size_t>(ranges[s].begin);
        bool is_right = pass.handed_back.defined() && is_close(pass.handed_back, whole[step].wanted[first]);
        for (size_t i = 0; i < pass.gradients.size(); ++i) {
          is_right = is_right && pass.gradients[i].defined() &&
                     is_close(pass.gradients[i], whole[step].gradients[2 * first + i]);
        }
        checker.expect(is_right, "stages share state",
                       fmt::format("{}, one after the other in one process: wrong gradients of stage {} in "
                                   "step {}",
                                   input, s, step + 1),
                       shared);
      }
    }
  }
  shape() = {};
  checker.proved("stages in one process: the graph is cut, and the gradient goes over by hand");
}

}  // namespace lab::stages
