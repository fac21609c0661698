#include "parallel/pipeline/step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "lockstep/comms/tensors.h"
#include "lockstep/error.h"
#include "lockstep/plan/pipeline_text.h"
#include "lockstep/trace/writer.h"
#include "parallel/say_where.h"
#include "parallel/seed.h"

namespace lockstep::pipeline {

namespace {

using plan::Action;
using plan::ActionKind;

constexpr size_t kAhead = 1;  // receives that are posted before their turn
constexpr size_t kMostDimensions = kFormWords - 2;

std::string describe(const Form& form) {
  return fmt::format("[{}] of {}", fmt::join(form.sizes, ", "), at::toString(form.type));
}

Form form_of(const at::Tensor& tensor) {
  return {.sizes = tensor.sizes().vec(), .type = tensor.scalar_type()};
}

at::Tensor to_words(const Form& form) {
  std::vector<int64_t> words = {static_cast<int64_t>(form.type), static_cast<int64_t>(form.sizes.size())};
  words.insert(words.end(), form.sizes.begin(), form.sizes.end());
  words.resize(kFormWords);
  return at::tensor(words, at::kLong);
}

}  // namespace

Form form_of_words(const std::array<int64_t, kFormWords>& words) {
  const auto refuse = [](const std::string& what) {
    throw Error(what + "; hint: do all ranks run the same build of the program?");
  };
  const auto [type, dimensions] = std::pair(words[0], words[1]);
  if (type < 0 || type >= static_cast<int64_t>(at::ScalarType::NumOptions) ||
      !at::isFloatingType(static_cast<at::ScalarType>(type))) {
    refuse(
        fmt::format("the sender announced a tensor of type number {}, expected a floating-point type", type));
  }
  if (dimensions < 0 || dimensions > static_cast<int64_t>(kMostDimensions)) {
    refuse(fmt::format("the sender announced a tensor of {} dimensions, expected 0 to {}", dimensions,
                       kMostDimensions));
  }
  Form form = {.sizes = {words.begin() + 2, words.begin() + 2 + dimensions},
               .type = static_cast<at::ScalarType>(type)};
  int64_t bytes = static_cast<int64_t>(c10::elementSize(form.type));
  for (const int64_t size : form.sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      refuse(fmt::format("the sender announced a tensor of shape [{}], which no memory can hold",
                         fmt::join(form.sizes, ", ")));
    }
  }
  return form;
}

Step::Step(StepInput input, Forms& forms, bool learns)
    : in_(std::move(input)),
      forms_(forms),
      learns_(learns),
      actions_(in_.plan.actions[static_cast<size_t>(in_.comm.rank())]) {
  const size_t places = in_.chunks.size() * static_cast<size_t>(in_.plan.shape.microbatches);
  slots_.resize(places);
  if (learns_) forms_ = {.inputs = std::vector<Form>(places), .outputs = std::vector<Form>(places)};
  for (const Action& action : actions_) {
    if (action.is_receive()) receives_.push_back(action);
  }
  report_.actions.reserve(actions_.size());
}

Step::~Step() {
  const auto end = [](const TensorWork& message) {
    try {
      message.wait();
    } catch (...) {
      // The caller has been told.
    }
  };
  for (const auto& message : arriving_) end(message);
  for (const auto& leaving : leaving_) end(leaving.message);
}

size_t Step::place(int stage, int microbatch) const {
  const auto& shape = in_.plan.shape;
  return static_cast<size_t>(stage / shape.ranks) * static_cast<size_t>(shape.microbatches) +
         static_cast<size_t>(microbatch);
}

int Step::tag_of(const Action& action) const {
  const bool goes_back = action.kind == ActionKind::kSendBackward || action.kind == ActionKind::kRecvBackward;
  const bool from_below = action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kSendBackward;
  const int border = from_below ? action.stage - 1 : action.stage;  // between this stage and the next
  return 2 * (border * in_.plan.shape.microbatches + action.microbatch) + (goes_back ? 1 : 0);
}

std::string Step::where(const Action& action) const {
  return fmt::format("pipeline {} {} on rank {}, action {} (micro-batch {})",
                     in_.trains ? "step" : "evaluation", in_.number, in_.comm.rank(), plan::to_string(action),
                     action.microbatch);
}

template <typename Act>
void Step::guard(const Action& action, const Act& act) {
  parallel::say_everywhere(
      in_.comm, [&] { return where(action); }, act);
}

at::Tensor Step::run() {
  const int64_t start_ns = trace::now_ns();
  const auto seconds = [&](int64_t ns) { return static_cast<double>(ns - start_ns) * 1e-9; };
  int64_t begin_ns = start_ns;
  report_.begin_ns = start_ns;
  for (const Action& action : actions_) {
    guard(action, [&] {
      post_receives();
      act(action);
    });
    const int64_t end_ns = trace::now_ns();
    report_.actions.push_back({.start = seconds(begin_ns), .end = seconds(end_ns)});
    if (action.is_compute() && trace::enabled()) {
      trace::record(trace::Name(plan::to_string(action)), begin_ns, end_ns,
                    {.stream = trace::Stream::kCompute, .call = in_.number});
    }
    begin_ns = end_ns;
  }
  for (; !leaving_.empty(); leaving_.pop_front()) {
    guard(leaving_.front().action, [&] { leaving_.front().message.wait(); });
  }
  report_.seconds = seconds(trace::now_ns());
  return loss_;
}

void Step::act(const Action& action) {
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(action);
    case ActionKind::kBackward:
      return backward(action);
    case ActionKind::kSendForward:
    case ActionKind::kSendBackward:
      return send(action);
    case ActionKind::kRecvForward:
    case ActionKind::kRecvBackward:
      return arrived(action, receive(action));
    case ActionKind::kInputGrad:
    case ActionKind::kWeightGrad:
      throw UsageError("a backward in two halves cannot be run");
  }
}

at::Tensor Step::compute(const Action& action, const at::Tensor& input) {
  const auto microbatch = static_cast<size_t>(action.microbatch);
  const uint64_t seed = parallel::derive_seed(in_.seed, parallel::Stream::kDropout, microbatch);
  at::Tensor output =
      in_.chunks[static_cast<size_t>(action.stage / in_.plan.shape.ranks)].forward(input, seed);
  if (!output.defined()) throw UsageError("the stage's output is not defined");
  if (!is_last(action.stage)) return output;
  const at::Tensor loss = in_.loss(output, in_.targets[microbatch]);
  if (!loss.defined() || loss.numel() != 1) {
    throw UsageError(fmt::format("the loss has {} elements; hint: it must be one number",
                                 loss.defined() ? loss.numel() : 0));
  }
  return loss * in_.weights[microbatch];
}

void Step::forward(const Action& action) {
  Slot& own = slot(action.stage, action.microbatch);
  if (is_first(action.stage)) own.input = in_.inputs[static_cast<size_t>(action.microbatch)];
  ++live_;
  report_.peak_activations =
      std::max(report_.peak_activations, static_cast<double>(live_) / static_cast<double>(in_.chunks.size()));
  const at::AutoGradMode grad_mode(in_.trains && !in_.recomputes);
  const auto version = own.input._version();
  const at::Tensor output = compute(action, own.input);
  if (in_.recomputes && own.input._version() != version) {
    throw UsageError(
        "the stage changes its input in place, so that it cannot be run anew; hint: without `recompute`, or "
        "with a first layer that is not in place");
  }
  if (is_last(action.stage)) {
    const at::Tensor share = output.detach();
    loss_ = loss_.defined() ? loss_ + share : share;
  } else {
    if (!output.is_floating_point()) {
      throw UsageError(fmt::format("the stage's output is {}; hint: gradients flow through floats alone",
                                   describe(form_of(output))));
    }
    Form& form = forms_.outputs[place(action.stage, action.microbatch)];
    if (learns_) form = form_of(output);
    if (form != form_of(output)) {
      throw UsageError(
          fmt::format("the stage's output is {}, and was {} for an input of the same shape; hint: "
                      "shapes may depend on the shape of the input alone",
                      describe(form_of(output)), describe(form)));
    }
    if (form.sizes.size() > kMostDimensions) {
      throw UsageError(fmt::format("the stage's output is {}; hint: {} dimensions are the most",
                                   describe(form), kMostDimensions));
    }
    hand_forward(action.stage, action.microbatch, output.detach());
  }
  if (!in_.trains) {
    --live_;
    own.input.reset();
  } else if (!in_.recomputes) {
    own.root = torch::autograd::impl::gradient_edge(output);
  }
}

void Step::hand_forward(int stage, int microbatch, const at::Tensor& activation) {
  if (is_here(stage + 1)) {
    slot(stage + 1, microbatch).input = activation.detach().requires_grad_(in_.trains);
  } else {
    slot(stage, microbatch).output = activation;
  }
}

void Step::backward(const Action& action) {
  Slot& own = slot(action.stage, action.microbatch);
  at::Tensor gradient = std::exchange(own.gradient, {});
  if (in_.recomputes) {
    const at::AutoGradMode grad_mode(true);
    own.root = torch::autograd::impl::gradient_edge(compute(action, own.input));
  }
  if (is_last(action.stage)) gradient = at::full_like(loss_, in_.scale);
  const auto root = std::exchange(own.root, {});
  if (root.is_valid()) {
    torch::autograd::Engine::get_default_engine().execute({root}, {gradient}, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  }
  const at::Tensor input = std::exchange(own.input, {});
  --live_;
  if (is_first(action.stage)) return;
  const at::Tensor input_gradient = input.grad().defined() ? input.grad() : at::zeros_like(input.detach());
  if (is_here(action.stage - 1)) {
    slot(action.stage - 1, action.microbatch).gradient = input_gradient;
  } else {
    own.input_gradient = input_gradient;
  }
}

void Step::arrived(const Action& action, const at::Tensor& tensor) {
  Slot& own = slot(action.stage, action.microbatch);
  if (action.kind == ActionKind::kRecvForward) {
    own.input = tensor.requires_grad_(in_.trains);
  } else {
    own.gradient = tensor;
  }
}

void Step::post_receives() {
  if (learns_) return;
  for (; posted_ < std::min(receives_.size(), received_ + 1 + kAhead); ++posted_) {
    const Action& action = receives_[posted_];
    const size_t at = place(action.stage, action.microbatch);
    const Form& form = action.kind == ActionKind::kRecvForward ? forms_.inputs[at] : forms_.outputs[at];
    const at::Tensor room = at::empty(form.sizes, form.type);
    arriving_.push_back({room, in_.comm.irecv(room, in_.plan.shape.peer_of(action), tag_of(action))});
  }
}

at::Tensor Step::receive(const Action& action) {
  ++received_;
  if (!learns_) {
    const at::Tensor tensor = arriving_.front().wait();
    arriving_.pop_front();
    return tensor;
  }
  const Form form = form_from(action);
  return recv_tensor(in_.comm, form.sizes, in_.plan.shape.peer_of(action), form.type, tag_of(action));
}

Form Step::form_from(const Action& action) {
  const size_t at = place(action.stage, action.microbatch);
  if (action.kind == ActionKind::kRecvBackward) return forms_.outputs[at];  // of what it is the gradient of
  std::array<int64_t, kFormWords> words = {};
  in_.comm.recv(std::span<int64_t>(words), in_.plan.shape.peer_of(action), tag_of(action));
  return forms_.inputs[at] = form_of_words(words);
}

void Step::send(const Action& action) {
  Slot& own = slot(action.stage, action.microbatch);
  const bool goes_forward = action.kind == ActionKind::kSendForward;
  const at::Tensor tensor =
      std::exchange(goes_forward ? own.output : own.input_gradient, at::Tensor()).contiguous();
  if (learns_ && goes_forward) isend(to_words(form_of(tensor)), action);
  isend(tensor, action);
}

void Step::isend(const at::Tensor& tensor, const Action& action) {
  while (!leaving_.empty() && leaving_.front().message.work.is_completed()) leaving_.pop_front();
  leaving_.push_back(
      {{tensor, in_.comm.isend(tensor, in_.plan.shape.peer_of(action), tag_of(action))}, action});
}

}  // namespace lockstep::pipeline
