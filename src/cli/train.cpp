#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/build_info.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/torch_verbs.h"
#include "train/baseline.h"

namespace lockstep::cli {

namespace {

using train::BaselineOptions;
using train::BaselineResult;

double samples_per_second(const BaselineOptions& options, int64_t done, double seconds) {
  return seconds > 0 ? static_cast<double>(done * options.batch) / seconds : 0;
}

BaselineResult train_with_progress(const BaselineOptions& options, std::FILE* stream) {
  Progress progress(stream, options.steps, use_colour(fileno(stream)));
  return train::train_baseline(options, [&](int64_t done, double loss, double seconds) {
    progress.update(
        done, seconds,
        fmt::format("loss {:.4f}  {:.0f} samples/s", loss, samples_per_second(options, done, seconds)));
    return !InterruptGuard::interrupted();
  });
}

void print_summary(const BaselineOptions& options, const BaselineResult& result, std::FILE* stream) {
  const auto done = std::ssize(result.losses);
  if (done < options.steps) fmt::print(stream, "interrupted after step {} of {}\n", done, options.steps);
  fmt::print(stream, "{} parameters, {} steps of {} samples in {:.1f} s, {:.0f} samples/s\n",
             result.parameters, done, options.batch, result.seconds,
             samples_per_second(options, done, result.seconds));
  fmt::print(stream, "loss: {:.4f} at first, {:.4f} at last\n", result.losses.front(), result.losses.back());
  fmt::print(stream, "validation loss: {:.4f} before, {:.4f} after; always answering the mean gives 1\n",
             result.validation_before, result.validation_after);
}

nlohmann::json to_json(const BaselineOptions& options, const BaselineResult& result) {
  const auto done = std::ssize(result.losses);
  return {{"options",
           {{"steps", options.steps},
            {"batch", options.batch},
            {"dim", options.dim},
            {"depth", options.depth},
            {"lr", options.lr},
            {"seed", options.seed}}},
          {"libtorch", LOCKSTEP_TORCH_VERSION},
          {"threads", result.threads},
          {"losses", result.losses},
          {"summary",
           {{"parameters", result.parameters},
            {"steps", done},
            {"interrupted", done < options.steps},
            {"first_loss", result.losses.front()},
            {"last_loss", result.losses.back()},
            {"validation_loss_before", result.validation_before},
            {"validation_loss_after", result.validation_after},
            {"seconds", result.seconds},
            {"samples_per_second", samples_per_second(options, done, result.seconds)}}}};
}

}  // namespace

int run_train(const TrainOptions& options, const Invocation&) {
  const InterruptGuard guard;
  const auto& baseline = options.baseline;
  std::FILE* stream = options.json.prints_text() ? stdout : stderr;
  fmt::print(stream, "FullMLP of {} layers, {} wide; Adam at {}; seed {}\n", baseline.depth, baseline.dim,
             baseline.lr, baseline.seed);
  std::fflush(stream);
  const BaselineResult result = train_with_progress(baseline, stream);
  print_summary(baseline, result, stream);
  if (options.json.asked()) options.json.write(to_json(baseline, result));
  const bool interrupted = std::ssize(result.losses) < baseline.steps;
  return interrupted ? kExitInterrupted : 0;
}

}  // namespace lockstep::cli
