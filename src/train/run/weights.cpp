#include "train/run/weights.h"

namespace lockstep::train {

Weights named_weights(const torch::nn::Module& model) {
  Weights weights;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const auto original = tied_names().find(name);
    if (original == tied_names().end()) {
      weights[name] = {.tensor = tensor};
    } else {
      weights.insert({original->second, {.tensor = tensor, .is_copy = true}});
    }
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  for (const auto& item : model.named_buffers()) add(item.key(), item.value());
  return weights;
}

const std::map<std::string, std::string>& tied_names() {
  static const std::map<std::string, std::string> names = {{"head.weight", "embeddings.token.weight"}};
  return names;
}

}  // namespace lockstep::train
