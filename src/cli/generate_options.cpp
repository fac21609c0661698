#include "cli/generate_options.h"

#include <limits>
#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/torch_verbs.h"

namespace lockstep::cli {

namespace {

constexpr const char* kFrom = "A run's folder, or a checkpoint";

}  // namespace

Action define_generate(Flags flags) {
  const auto options = std::make_shared<GenerateFlags>();
  flags.word("FOLDER", options->from, kFrom, true);
  flags.text("--prompt", options->prompt, "What the model goes on behind (default: a new line)", "TEXT");
  flags.number("--length", options->length, 1, 1'000'000, "Tokens");
  flags.number("--temperature", options->temperature, 0, 100,
               "Above 1 bolder; 0: always the likeliest token");
  flags.number("--top-k", options->top_k, 0, 1'000'000, "Draw from the likeliest only; 0: from all");
  flags.number("--seed", options->seed, 0, std::numeric_limits<int64_t>::max(),
               "Of the draws; the same seed gives the same text");
  return [options](const Invocation& invocation) { return run_generate(*options, invocation); };
}

Action define_eval(Flags flags) {
  const auto options = std::make_shared<EvalOptions>();
  flags.word("FOLDER", options->from, kFrom, true);
  flags.text("--data", options->data,
             "Another text than the run's own, whose last tenth counts: a file or folder", "PATH");
  options->json.add_to(flags);
  return [options](const Invocation& invocation) { return run_eval(*options, invocation); };
}

}  // namespace lockstep::cli
