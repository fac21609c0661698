#pragma once

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

/// Throws UsageError, naming both places by group and index, if a parameter is given to the optimizer twice,
/// as Module::parameters() gives a tied weight. LibTorch's own optimizers would step it twice, silently.
void refuse_repeated_parameters(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
