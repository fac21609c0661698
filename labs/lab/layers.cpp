#include "lab/layers.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace lab {

namespace {

/// What this thread's rank has run since it last told its clock. Backward runs in the thread that calls it.
struct Owed {
  bool has_clock = false;
  double forward_us = 0;
  double backward_us = 0;
};
thread_local Owed owed;

void pay(Rank& rank) {
  if (const double us = std::exchange(owed.forward_us, 0); us > 0) rank.compute(us);
  if (const double us = std::exchange(owed.backward_us, 0); us > 0) rank.compute(us);
}

/// Number `index` of layer `number`, within -1 and 1.
float draw(int number, int64_t index) {
  uint64_t x = static_cast<uint64_t>(number + 1) * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(index);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) / static_cast<float>(1 << 23) - 1;
}

torch::Tensor drawn(int number, std::vector<int64_t> sizes, float most, int64_t first) {
  const auto values = torch::empty(sizes);
  auto* const data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = most * draw(number, first + i);
  return values.clone().requires_grad_();
}

}  // namespace

Shape& shape() {
  static Shape in_force;
  return in_force;
}

torch::Tensor Layer::forward(const torch::Tensor& input) const {
  auto output = torch::tanh(torch::linear(input, weight, bias));
  if (owed.has_clock) {
    owed.forward_us += kForwardUs;
    if (output.requires_grad())
      output.register_hook([](const torch::Tensor&) { owed.backward_us += kBackwardUs; });
  }
  return output;
}

Layer make_layer(int number) {
  // Wide enough that neither activations nor gradients vanish over some twenty layers.
  const int64_t width = shape().width;
  const float most = 1.7F * std::sqrt(3.0F / static_cast<float>(width));
  return {drawn(number, {width, width}, most, 0), drawn(number, {width}, 0.1F, width * width)};
}

LossAndGradient mean_squared_error(const torch::Tensor& output, const torch::Tensor& target) {
  if (!output.defined()) throw std::runtime_error("mean_squared_error: the output is not defined");
  if (!target.defined())
    throw std::runtime_error("mean_squared_error: the target is not defined; the last rank has it");
  const auto leaf = output.detach().requires_grad_();
  const auto loss = torch::mse_loss(leaf, target);
  loss.backward();
  return {loss.item<float>(), leaf.grad()};
}

void send_tensor(Rank& rank, const torch::Tensor& tensor, int to) {
  if (!tensor.defined())
    throw std::runtime_error("send_tensor to rank " + std::to_string(to) + ": the tensor is not defined");
  pay(rank);
  const auto floats = tensor.detach().contiguous();
  rank.send({floats.data_ptr<float>(), static_cast<size_t>(floats.numel())}, to);
}

torch::Tensor recv_tensor(Rank& rank, int from) {
  pay(rank);
  auto tensor = torch::empty({shape().batch, shape().width});
  rank.recv({tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())}, from);
  return tensor;
}

void run_on_clock(Rank& rank, const std::function<void()>& body) {
  owed = {.has_clock = true};
  run_plainly(body);
  pay(rank);
}

void run_plainly(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    std::string text = error.what_without_backtrace();
    if (text.find("implicitly created") != std::string::npos)
      text += "; hint: output.backward(gradient) got no gradient, or one that is not defined";
    throw std::runtime_error(text);
  }
}

}  // namespace lab
