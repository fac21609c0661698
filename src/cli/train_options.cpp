#include "cli/train_options.h"

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

Action define_train(Flags flags) {
  const auto options = std::make_shared<TrainOptions>();
  options->json.add_to(flags);
  return [options](const Invocation& invocation) { return run_train(*options, invocation); };
}

Action define_probe(Flags) {
  return run_probe;
}

}  // namespace lockstep::cli
