#include "cli/train_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

/// Refuses a model that this machine cannot hold, before the kernel ends the process without a word.
void require_memory(const train::BaselineOptions& options) {
  constexpr double kFloat = 4;
  const auto dim = static_cast<double>(options.dim);
  const auto depth = static_cast<double>(options.depth);
  const double weights = depth * dim * (dim + 1) * 4;  // gradient, two moments of Adam
  const double activations = depth * dim * static_cast<double>(options.batch) * 2;  // of Linear and of ReLU
  const double needed = kFloat * (weights + activations);
  const double present =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= present) return;
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  throw UsageError(
      fmt::format("--dim {}, --depth {} and --batch {} need {:.1f} GiB, this machine has {:.1f} "
                  "GiB; hint: lower the largest of them",
                  options.dim, options.depth, options.batch, needed / kGiB, present / kGiB));
}

}  // namespace

Action define_train(Flags flags) {
  const auto options = std::make_shared<TrainOptions>();
  auto& baseline = options->baseline;
  flags.number("--steps", baseline.steps, 1, 1'000'000'000, "Optimizer steps");
  flags.number("--batch", baseline.batch, 1, 1'000'000, "Samples a step");
  flags.number("--dim", baseline.dim, 1, 65'536, "Width of every layer");
  flags.number("--depth", baseline.depth, 1, 10'000, "Linear layers");
  flags.number("--lr", baseline.lr, 1e-12, 1000.0, "Adam's learning rate");
  flags.number("--seed", baseline.seed, 0, std::numeric_limits<int64_t>::max(),
               "Seed of weights, task and samples; the same seed gives the same losses");
  options->json.add_to(flags);
  return [options](const Invocation& invocation) {
    require_memory(options->baseline);
    return run_train(*options, invocation);
  };
}

Action define_probe(Flags) {
  return run_probe;
}

}  // namespace lockstep::cli
