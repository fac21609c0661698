// How the training of ranks is compared with that of one process.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "lab/replicas.h"

namespace lab {

namespace {

double largest(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

/// Equal but for rounding of floats; false for NaN.
bool is_close(const torch::Tensor& found, const torch::Tensor& expected, double part = 1e-4) {
  return largest(found - expected) <= 1e-6 + part * largest(expected);
}

bool has_same_bits(const torch::Tensor& one, const torch::Tensor& other) {
  return std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0;
}

/// A parameter in a step of a rank.
struct Place {
  size_t step = 0, rank = 0, parameter = 0;
  std::string text;
};

torch::Tensor gradient_at(const History& history, const Place& at) {
  const auto& gradient = history.gradients[at.rank][at.step][at.parameter];
  return gradient.defined() ? gradient : torch::zeros_like(history.weights[at.rank][at.step][at.parameter]);
}

torch::Tensor move_at(const History& history, const Place& at) {
  const auto& weights = history.weights[at.rank];
  return weights[at.step][at.parameter] - weights[at.step + 1][at.parameter];
}

/// What a wrong gradient is, if it is something known.
struct Mistake {
  const char* name;
  bool is_it;
  std::string what, meaning;
};

[[noreturn]] void fail_by_gradient(Checker& checker, const History& history,
                                   const std::vector<TrueStep>& truth, const Place& at) {
  const auto found = gradient_at(history, at);
  const auto& step = truth[at.step];
  const auto& right = step.gradients[at.parameter];
  const auto& own = step.of_rank[at.rank][at.parameter];
  const auto world = history.weights.size();
  const auto n = static_cast<double>(world);
  const auto last = [&] { return gradient_at(history, {at.step - 1, at.rank, at.parameter, ""}); };
  const double size = right.square().sum().item<double>();
  const double factor = size > 0 ? (found * right).sum().item<double>() / size : 0;
  // Whose gradient it is, here and on the next rank.
  const auto next = gradient_at(history, {at.step, (at.rank + 1) % world, at.parameter, ""});
  size_t one = 0;
  while (one < world && !(is_close(found, step.of_rank[one][at.parameter]) &&
                          is_close(next, step.of_rank[one][at.parameter])))
    ++one;
  const Mistake known[] = {
      {"weights averaged", is_close(found, own) && is_close(move_at(history, at), step.moves[at.parameter]),
       "optimizer.step() found this rank's own gradient, and the weights were averaged after it",
       "Averaging weights is another way with other messages: optimizers with a state of their own, such as "
       "momentum, keep one that differs by rank. Average the gradients, then step."},
      {"weights do not move", largest(found) == 0, "optimizer.step() found no gradient, or zeros",
       "backward() fills the gradients, optimizer.step() uses them. Are both called, in this order, and does "
       "nobody empty a gradient in between?"},
      {"one rank's gradient", world > 1 && one < world,
       fmt::format("optimizer.step() found the gradient of rank {}'s samples, there and on rank {}", one,
                   (at.rank + 1) % world),
       "The ranks' gradients must be added, and divided by world_size. A broadcast adds nothing."},
      {"gradients not averaged", is_close(found, own),
       "optimizer.step() found the gradient of this rank's own samples",
       "The mean over ranks must be in the parameter's grad() before optimizer.step(). Was this parameter's "
       "gradient reduced, before the step, and the result put back?"},
      {"last step added", at.step > 0 && is_close(found, right + last()),
       "optimizer.step() found this step's gradient and the last step's together",
       "backward() adds to grad(): call optimizer.zero_grad() in every step, before it. Or a buffer of yours "
       "still holds the last step's values where a gradient is undefined in this one."},
      {"last step's gradient", at.step > 0 && is_close(found, last()),
       "optimizer.step() found what it had found in the step before",
       "Something still holds the values of the last step: a buffer that is not filled again, a gradient "
       "that "
       "was read before backward() had written it, or a result that was put back too late."},
      {"sum instead of mean", is_close(found, right * n),
       fmt::format("optimizer.step() found {} times the gradient of the whole batch", world),
       "An all-reduce adds. The gradient of a mean over the whole batch is the mean of the ranks' gradients: "
       "divide by world_size, once."},
      {"divided twice", is_close(found, right / n),
       fmt::format("optimizer.step() found 1/{} of the gradient of the whole batch", world),
       "The sum was divided by world_size more than once. Divide the loss, or each gradient before the "
       "all-reduce or after it, and only one of these."},
      {"others' gradients missing", is_close(found, own / n),
       fmt::format("optimizer.step() found 1/{} of the gradient of this rank's own samples", world),
       "It was divided, but the other ranks' gradients are not in it: the all-reduce is missing, its "
       "result was read before wait(), or it is in another buffer."},
      {"wrong factor", factor != 0 && is_close(found, right * factor),
       fmt::format("optimizer.step() found {:.6g} times the gradient of the whole batch, which is the ranks' "
                   "sum divided by {:.6g}",
                   factor, n / factor),
       "The sum must be divided by world_size and nothing else: by all ranks, also those that have nothing "
       "to "
       "add, and by no fixed number. Otherwise something scaled it: another loss, a second backward()."},
  };
  for (const auto& mistake : known) {
    if (mistake.is_it) checker.fail(mistake.name, at.text + ": " + mistake.what, mistake.meaning);
  }
  checker.fail(
      "wrong gradient",
      fmt::format("{}: optimizer.step() found a gradient that differs by up to {:.2g} from that of one "
                  "process on the whole batch, whose largest number is {:.2g}",
                  at.text, largest(found - right), largest(right)),
      is_close(found, right, 0.02)
          ? "It is nearly right: was it rounded on the way, or is it that of weights which differ a little?"
          : "Every rank must step by the mean over ranks of this parameter's gradients, all of it, those of "
            "this step and of no other.");
}

/// The gradient was right; what became of it?
void expect_update(Checker& checker, const History& history, const TrueStep& truth, const Place& at) {
  const auto move = move_at(history, at);
  const auto& right = truth.moves[at.parameter];
  const int updates = history.updates[at.rank][at.step];
  const auto what = fmt::format("{}: optimizer.step() was called {} times", at.text, updates);
  checker.expect(updates < 2, "stepped twice", what, "One step of the optimizer for each batch.");
  checker.expect(updates > 0 || largest(move) > 0, "weights do not move", what,
                 "backward() and the all-reduces only fill grad(). optimizer.step() moves the weights.");
  checker.expect(updates > 0, "optimizer not used", what + ", and the weights changed",
                 "The optimizer that is handed to you has a learning rate and a momentum of its own. Let it "
                 "make the step.");
  // A weight is rounded to a part in 10^7 of itself.
  const double slack = 4e-7 * largest(history.weights[at.rank][at.step][at.parameter]);
  checker.expect(
      largest(move - right) <= slack + 1e-6 + 1e-4 * largest(right), "wrong step",
      fmt::format(
          "{}: the gradient was right when optimizer.step() was called, and the weight moved by up to "
          "{:.3g}, expected {:.3g}",
          at.text, largest(move), largest(right)),
      "Only optimizer.step() may change weights, and nobody but the optimizer its state.");
}

}  // namespace

void expect_parity(Checker& checker, const std::string& net_name, const Net& net, const History& history,
                   const std::vector<TrueStep>& truth) {
  const auto parameters = unique_parameters(net);
  const auto world = history.weights.size();
  checker.expect(history.damage.empty(), "input changed", history.damage,
                 "The samples belong to the caller, and so does the memory beside them: only read them.");
  for (size_t s = 0; s < truth.size(); ++s) {
    const auto for_all = [&](const auto& look) {
      for (size_t r = 0; r < world; ++r) {
        for (size_t i = 0; i < parameters.size(); ++i)
          look(Place{s, r, i,
                     fmt::format("step {}, rank {} of {}, {} of {}", s + 1, r, world, parameters[i].name,
                                 net_name)});
      }
    };
    for_all([&](const Place& at) {
      if (!is_close(gradient_at(history, at), truth[s].gradients[at.parameter]))
        fail_by_gradient(checker, history, truth, at);
    });
    for_all([&](const Place& at) { expect_update(checker, history, truth[s], at); });
    for_all([&](const Place& at) {
      const Place first{s, 0, at.parameter, ""};
      const bool is_gradient = !has_same_bits(gradient_at(history, at), gradient_at(history, first));
      checker.expect(
          !is_gradient && has_same_bits(history.weights[at.rank][s + 1][at.parameter],
                                        history.weights[0][s + 1][at.parameter]),
          "replicas drift apart",
          fmt::format("{}: the {} has other bits than on rank 0", at.text,
                      is_gradient ? "gradient" : "weight after the step"),
          "All ranks must step by the same bits: let everyone use the all-reduce's result, divided "
          "in the same way.");
    });
  }
}

void expect_losses(Checker& checker, const std::string& net_name, const History& history,
                   const std::vector<TrueStep>& truth) {
  const auto world = history.losses.size();
  const auto is_near = [](double one, double other) { return std::abs(one - other) <= 1e-4 * (1 + other); };
  for (size_t s = 0; s < truth.size(); ++s) {
    for (size_t r = 0; r < world; ++r) {
      const double found = history.losses[r][s], right = truth[s].losses[r];
      if (is_near(found, right)) continue;
      checker.fail(
          "wrong loss",
          fmt::format("step {}, rank {} of {}, {}: train_step returned {:.5f}, the loss of this "
                      "rank's samples before the step is {:.5f}{}",
                      s + 1, r, world, net_name, found, right,
                      is_near(found, truth[s].loss) ? "; it is the mean of all ranks' losses"
                      : is_near(found * static_cast<double>(world), right) ? "; it was divided by world_size"
                                                                           : ""),
          "Return the loss of this rank's own samples, from before the step, undivided.");
    }
  }
}

std::vector<std::string> left_behind(const Net& net, const History& history,
                                     const std::vector<TrueStep>& truth, int step, int rank) {
  const auto s = static_cast<size_t>(step), r = static_cast<size_t>(rank);
  const auto parameters = unique_parameters(net);
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size() && s < history.gradients[r].size(); ++i) {
    if (history.gradients[r][s].empty()) continue;  // its run ended before the update
    const auto found = gradient_at(history, {s, r, i, ""});
    if (!is_close(found, truth[s].gradients[i]) && is_close(found, truth[s].of_rank[r][i]))
      names.push_back(parameters[i].name);
  }
  return names;
}

}  // namespace lab
