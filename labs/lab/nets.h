#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// The small models of the lessons about data parallel training, and ways to their floats.
namespace lab {

/// A model that is as wide at its output as at its input; its parameters are floats, contiguous.
class Net : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;

  /// For checks: called in backward just before layer i's gradients are computed.
  std::function<void(int layer)> before_backward_of;

 protected:
  /// To be called in forward with a layer's output.
  void watch_backward(int layer, const torch::Tensor& output);
};

/// The memory of a contiguous float tensor, for collectives to work on. Writing there is no operation of
/// autograd. Throws std::invalid_argument for an undefined tensor, and for one that is not contiguous.
std::span<float> floats(const torch::Tensor& tensor);

/// A parameter, once, and the names under which the model holds it.
struct NamedParameter {
  std::string name;
  torch::Tensor tensor;
  bool is_tied = false;  ///< Held under several names: parameters() lists it as often.
};

/// All of a model, each once, in the order of registration.
std::vector<NamedParameter> unique_parameters(const torch::nn::Module& module);
/// Those that get a gradient, each once, in the order of registration: frozen ones are left out.
std::vector<torch::Tensor> trainable_parameters(const torch::nn::Module& module);

/// `depth` layers of dim x dim with a bias, each added to what came in: 2 * depth parameters.
std::shared_ptr<Net> make_mlp(int64_t dim, int depth, uint64_t seed);
/// Two layers that share one weight, as input and output embeddings do.
std::shared_ptr<Net> make_tied(int64_t dim, uint64_t seed);
/// Three layers, the middle one frozen: its requires_grad() is false.
std::shared_ptr<Net> make_frozen(int64_t dim, uint64_t seed);
/// `depth` layers, at least three: the last one shares the first one's weight, the second one's is frozen,
/// and `shape` decides what else is shared or frozen. All biases are zeros at first.
std::shared_ptr<Net> make_mixed(int64_t dim, int depth, uint64_t seed, uint64_t shape);
/// Two experts: samples whose first number is positive go through one, the others through the other. A batch
/// that has none of one kind leaves that expert without a gradient.
std::shared_ptr<Net> make_experts(int64_t dim, uint64_t seed);

}  // namespace lab
