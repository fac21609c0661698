// Lesson 12: gradient hooks that start all-reduces, and one wait for all of them.
#include <vector>

#include "lab/autograd.h"
#include "lab/collectives.h"
#include "lab/nets.h"
#include "lab/world.h"

namespace my_work {

class Ddp {
 public:
  Ddp(lab::Rank& rank, lab::Net& net) : rank_(rank), net_(net) {
    for (const auto& parameter : lab::trainable_parameters(net_)) {
      hooks_.push_back(lab::after_gradient(parameter, [this, parameter] { reduce(parameter.grad()); }));
    }
  }

  float train_step(torch::optim::Optimizer& optimizer, const torch::Tensor& input,
                   const torch::Tensor& target) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(net_.forward(input), target);
    loss.backward();
    for (auto& work : under_way_) work.wait();
    under_way_.clear();
    optimizer.step();
    return loss.item<float>();
  }

 private:
  void reduce(const torch::Tensor& gradient) {
    under_way_.push_back(rank_.start([gradient](lab::Rank& stream) {
      lab::collectives().all_reduce(stream, lab::floats(gradient));
      gradient.div_(stream.world_size());
    }));
  }

  lab::Rank& rank_;
  lab::Net& net_;
  std::vector<lab::GradientHook> hooks_;  // a hook lives as long as this
  std::vector<lab::Work> under_way_;
};

}  // namespace my_work
