#include "train/run/generate.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/checkpoint_folder.h"
#include "cli/size.h"
#include "cli/torch_verbs.h"
#include "launch/environment.h"
#include "train/run/saved_run.h"

namespace lockstep::cli {

int run_generate(const GenerateFlags& flags, const Invocation&) {
  const train::Run run = train::read_checkpoint_run(find_checkpoint(flags.from));
  const auto model = train::load_language_model(run);
  const std::string prompt = flags.prompt.empty() ? "\n" : flags.prompt;
  std::string unseen = flags.prompt;  // shown with the first token: the tokenizer may refuse it before
  train::generate(model, run.config, *run.tokenizer,
                  {.prompt = prompt,
                   .length = flags.length,
                   .temperature = flags.temperature,
                   .top_k = flags.top_k,
                   .seed = static_cast<uint64_t>(flags.seed)},
                  [&unseen](const std::string& text) {
                    fmt::print("{}", std::exchange(unseen, ""));
                    std::fwrite(text.data(), 1, text.size(), stdout);
                    std::fflush(stdout);
                  });
  fmt::print("\n");
  return 0;
}

int run_eval(const EvalOptions& options, const Invocation&) {
  train::Run run = train::read_checkpoint_run(find_checkpoint(options.from));
  if (!options.data.empty()) run.settings.data = options.data;
  say_if_large("eval", run.settings.data);
  const auto task = train::make_task(run, launch::current_environment());
  auto model = task->make_model(0);
  train::load_whole_model(run.folder, model);
  const auto evaluated = train::evaluate(model, *task);
  const double accuracy =
      static_cast<double>(evaluated.score.right) / static_cast<double>(evaluated.score.all);
  if (options.json.prints_text()) {
    fmt::print("{}: validation part of {}, {} samples\n", run.folder.string(), run.settings.data,
               evaluated.samples);
    fmt::print("loss {:.6f}, perplexity {:.4f}, accuracy {:.2f}%\n", evaluated.loss, std::exp(evaluated.loss),
               100 * accuracy);
    if (const auto floor = task->validation_floor()) {
      fmt::print("entropy {:.6f}: {:.2f}% above it\n", floor->nats, 100 * (evaluated.loss / floor->nats - 1));
    }
  }
  options.json.write({{"checkpoint", run.folder.string()},
                      {"data", run.settings.data},
                      {"samples", evaluated.samples},
                      {"loss", evaluated.loss},
                      {"perplexity", std::exp(evaluated.loss)},
                      {"accuracy", accuracy}});
  return 0;
}

}  // namespace lockstep::cli
