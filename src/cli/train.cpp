#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/torch_verbs.h"
#include "launch/environment.h"
#include "launch/number.h"
#include "lockstep/comms/init.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"
#include "lockstep/trace/chrome.h"
#include "lockstep/trace/file.h"
#include "lockstep/trace/session.h"
#include "parallel/ddp/agreement.h"
#include "train/run/generate.h"
#include "train/run/saved_run.h"
#include "train/run/trainer.h"

namespace lockstep::cli {

namespace {

using train::Run;
using train::TrainResult;
using train::TrainStart;
using train::TrainStep;

/// A word as a shell takes it.
std::string quoted(const std::string& word) {
  const bool is_plain = std::ranges::all_of(
      word, [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("-_./+:@%,=", c) != nullptr; });
  if (is_plain && !word.empty()) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

/// What the user of rank 0 sees.
class Display {
 public:
  explicit Display(const Run& run) : run_(run), stream_(open_stream()) {}
  ~Display() {
    if (stream_ != stdout) std::fclose(stream_);
  }
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  /// Whether something could not be written, of what has to be on its way by now. Whoever read it and left
  /// has seen enough.
  bool lost() {
    if (std::fflush(stream_) == 0 && std::ferror(stream_) == 0) return false;
    pollfd reader = {.fd = fileno(stream_), .events = POLLOUT, .revents = 0};
    return poll(&reader, 1, 0) < 0 || (reader.revents & POLLERR) == 0;
  }

  void start(const TrainStart& start, int ranks) {
    start_ = start;
    const auto& settings = run_.settings;
    print("{}: {} parameters, {}\n", run_.is_mnist() ? "Classifier" : "TinyTransformer", start.parameters,
          description());
    print("{} on {} {} with {} {} each; AdamW at {}, seed {}; run folder {}\n",
          settings.parallel == "pipeline" ? fmt::format("Pipeline ({})", settings.schedule)
          : settings.parallel == "ddp"    ? "Data parallel"
                                          : "Alone",
          ranks, ranks == 1 ? "rank" : "ranks", start.threads, start.threads == 1 ? "thread" : "threads",
          settings.lr, settings.seed, run_.folder.string());
    for (const auto& note : start.notes) print("note: {}\n", note);
    if (start.first_step > 0) print("goes on behind step {}\n", start.first_step);
    std::fflush(stream_);
    progress_ =
        std::make_unique<Progress>(stream_, start.steps, use_colour(fileno(stream_)), start.first_step);
  }

  void step(const TrainStep& step) {
    const std::string floor = start_.entropy ? fmt::format("  H {:.4f}", *start_.entropy) : "";
    progress_->update(
        step.step, step.seconds,
        fmt::format("loss {:.4f}{}  {:.0f} {}/s", step.loss, floor, step.tokens_per_s, start_.unit));
  }

  void end(const TrainResult& result) {
    progress_->clear();
    print("{} steps in {:.1f} s, {:.0f} {}/s; exposed communication {:.2f} ms a step\n",
          result.step - start_.first_step, result.seconds, result.tokens_per_s, start_.unit,
          result.exposed_ms);
    if (result.stop_signal != 0) {
      print("stopped by SIG{} after step {} of {}; saved in {}\n", sigabbrev_np(result.stop_signal),
            result.step, result.steps, result.checkpoint.string());
      print("to go on: lockstep train --resume --run-dir {}\n", quoted(run_.folder.string()));
      return;
    }
    print("loss: {:.4f} at first, {:.4f} at last\n", result.first_loss, result.loss);
    if (run_.is_mnist()) {
      print("validation: loss {:.4f}, {:.2f}% right\n", result.validation_loss, 100 * result.accuracy);
    } else {
      print("validation: loss {:.4f}, perplexity {:.3f}, {:.1f}% of tokens right\n", result.validation_loss,
            std::exp(result.validation_loss), 100 * result.accuracy);
    }
    if (result.floor) print_floor(result);
    print("run folder {}: metrics.jsonl, logs/, {}\n", run_.folder.string(),
          std::filesystem::relative(result.checkpoint, run_.folder).string());
    if (run_.tokenizer) print_sample(result);
  }

 private:
  /// A full disk behind standard output must not end the training: fmt::print would throw.
  template <typename... Arguments>
  void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
    std::fwrite(text.data(), 1, text.size(), stream_);
  }

  static std::FILE* open_stream() {
    const char* const told = std::getenv(kOutVariable);
    const int fd = told == nullptr ? -1 : launch::parse_number(kOutVariable, told, 0, 1'000'000);
    std::FILE* const stream = fdopen(fd, "w");
    return stream == nullptr ? stdout : stream;
  }

  std::string description() const {
    if (run_.is_mnist()) return "images of digits";
    return fmt::format("{} layers, {} wide, {} tokens ({}) of {}", run_.config.num_hidden_layers,
                       run_.config.hidden_size, run_.config.vocab_size, run_.tokenizer->kind(),
                       run_.settings.data);
  }

  void print_floor(const TrainResult& result) {
    print("the entropy H of the validation text is {:.4f}: {:.1f}% above it\n", *result.floor,
          100 * (result.validation_loss / *result.floor - 1));
    if (result.leaks) {
      print(
          "WARNING: a loss below the entropy is impossible for a model that sees only what came "
          "before: the token to guess leaks into the input\n");
    }
  }

  void print_sample(const TrainResult& result) {
    const Run saved = train::read_checkpoint_run(result.checkpoint);
    print("a sample (lockstep generate {}):\n", run_.folder.string());
    const std::string& first = saved.tokenizer->text_of(0);
    train::generate(
        train::load_language_model(saved), saved.config, *saved.tokenizer,
        {.prompt = saved.tokenizer->kind() == "bpe" ? "\n" : first, .length = 240, .temperature = 0.8},
        [&](const std::string& text) { print("{}", text); });
    print("\n");
  }

  const Run& run_;
  std::FILE* const stream_;
  TrainStart start_;
  std::unique_ptr<Progress> progress_;
};

void write_summary(const Run& run, const TrainResult& result) {
  nlohmann::ordered_json summary = {
      {"step", result.step},
      {"steps", result.steps},
      {"stopped_by", result.stop_signal == 0 ? "" : fmt::format("SIG{}", sigabbrev_np(result.stop_signal))},
      {"loss", result.loss},
      {"seconds", result.seconds},
      {"tokens_per_s", result.tokens_per_s},
      {"exposed_ms", result.exposed_ms},
      {"checkpoint", std::filesystem::relative(result.checkpoint, run.folder).string()}};
  if (result.stop_signal == 0) {
    summary["validation_loss"] = result.validation_loss;
    summary["perplexity"] = std::exp(result.validation_loss);
    summary["accuracy"] = result.accuracy;
    if (result.floor) {
      summary["entropy"] = *result.floor;
      summary["leaks"] = result.leaks;
    }
  }
  train::write_run_file(run.folder / "summary.json", summary.dump(2) + "\n");
}

/// Every rank writes its spans; rank 0 puts them together.
void write_trace(const Run& run, Communicator& comm) {
  const char* const folder = std::getenv("LOCKSTEP_TRACE");
  if (folder == nullptr) return;
  trace::stop();
  comm.barrier();
  if (comm.rank() == 0) trace::write_file(run.folder / "trace.json", trace::to_chrome(trace::read(folder)));
}

int train_on_rank(const Run& run, Communicator& comm, const train::TrainOptions& options) {
  const StopSignals signals;
  std::signal(SIGPIPE, SIG_IGN);  // the run goes on after a reader of its output has left
  std::unique_ptr<Display> display;
  if (comm.rank() == 0) display = std::make_unique<Display>(run);
  const train::TrainEvents events = {.on_start =
                                         [&](const TrainStart& start) {
                                           if (display) display->start(start, comm.world_size());
                                         },
                                     .on_step =
                                         [&](const TrainStep& step) {
                                           if (display) display->step(step);
                                         },
                                     .stop_signal = StopSignals::seen};
  const TrainResult result = train::train(run, comm, options, events);
  write_trace(run, comm);
  if (display) {
    write_summary(run, result);
    display->end(result);
  }
  const bool lost = display && display->lost();
  comm.barrier();  // a rank that is gone would be told as a failure while another still speaks
  if (result.stop_signal == 0 && lost) {
    fmt::print(stderr, "{}\n", kLostOutput);
    return kExitLostOutput;
  }
  if (result.stop_signal == 0) return 0;
  return result.stop_signal == SIGINT ? kExitInterrupted : kExitStopped;
}

}  // namespace

int run_train_rank(const TrainRankFlags& flags, const Invocation&) {
  Communicator comm = init_distributed();
  Run run = train::read_run(flags.run_dir);
  if (!flags.settings.empty()) run.settings = train::parse_settings(flags.settings, "--settings");
  return train_on_rank(run, comm,
                       {.resume = flags.resume || identify().restart_count > 0,
                        .inexact = flags.inexact,
                        .tensorboard = flags.tensorboard,
                        .environment = launch::current_environment()});
}

int run_train(const TrainFlags& given, const Invocation&) {
  if (given.request.folder.empty()) {
    throw UsageError(
        "lockstep train: --run-dir is missing; hint: ranks that another launcher started must all know it");
  }
  TrainFlags flags = given;
  flags.request.resume = flags.request.resume || identify().restart_count > 0;
  Communicator comm =
      init_distributed({.engine = chosen_engine(flags.request, launch::current_environment())});
  flags.request.given.values.world_size = comm.world_size();
  flags.request.given.names.insert("world_size");
  train::RunLock lock;
  std::string settings;
  if (comm.rank() == 0) {
    settings = to_json(prepare_run(flags.request, launch::current_environment(), lock).settings);
  }
  settings = ddp::gather_texts(comm, settings).front();
  Run run = train::read_run(flags.request.folder);
  run.settings = train::parse_settings(settings, "settings of rank 0");
  return train_on_rank(run, comm,
                       {.resume = flags.request.resume,
                        .inexact = flags.inexact,
                        .tensorboard = flags.tensorboard,
                        .environment = launch::current_environment()});
}

}  // namespace lockstep::cli
