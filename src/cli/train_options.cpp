#include "cli/train_options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/define.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

Action define_train(CLI::App& app) {
  const auto options = std::make_shared<TrainOptions>();
  options->json.add_to(app);
  return [options](const Invocation& invocation) { return run_train(*options, invocation); };
}

Action define_probe(CLI::App&) {
  return run_probe;
}

}  // namespace lockstep::cli
