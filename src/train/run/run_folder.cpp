#include "train/run/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "launch/whole_file.h"
#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/store.h"
#include "train/data/fetch.h"
#include "train/data/text_corpus.h"

namespace lockstep::train {

namespace {

constexpr const char* kRun = "run.json";
constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.json";

std::string text_of(const TrainSettings& settings, const Variables& environment) {
  if (settings.data == "moby-dick")
    return read_text(fetch(moby_dick(), environment) / moby_dick().files[0].path);
  if (!std::filesystem::exists(settings.data)) {
    throw UsageError(fmt::format(
        "--data {}: no such file or folder; hint: grammar, moby-dick, mnist, or a path", settings.data));
  }
  return read_text(settings.data);
}

/// The tokenizer of a new run, within the config's vocabulary.
Tokenizer make_tokenizer(const TrainSettings& settings, const TransformerConfig& config,
                         const Variables& environment) {
  const bool is_grammar = settings.data == "grammar";
  const std::string text = is_grammar ? Grammar().alphabet() : text_of(settings, environment);
  const bool pairs = settings.tokenizer == "bpe" || (settings.tokenizer == "auto" && !is_grammar);
  auto tokenizer = pairs ? Tokenizer::byte_pairs(text, config.vocab_size) : Tokenizer::characters(text);
  if (tokenizer.vocab_size() > config.vocab_size) {
    throw UsageError(
        fmt::format("--data {} has {} different characters, vocab_size is {}; hint: raise it in --config, or "
                    "--tokenizer bpe",
                    settings.data, tokenizer.vocab_size(), config.vocab_size));
  }
  return tokenizer;
}

void require_fit(const Run& run) {
  const auto& settings = run.settings;
  if (settings.parallel == "none" && settings.world_size > 1) {
    throw UsageError(fmt::format("--parallel none on {} ranks; hint: --nproc-per-node 1, or --parallel ddp",
                                 settings.world_size));
  }
  const int64_t shares = run.microbatches() * (settings.parallel == "pipeline" ? 1 : settings.world_size);
  if (settings.batch % shares != 0) {
    throw UsageError(fmt::format(
        "--batch {} does not divide by {}: {} micro-batches on each of {} ranks; hint: a multiple of {}",
        settings.batch, shares, run.microbatches(), shares / run.microbatches(), shares));
  }
  if (settings.parallel != "pipeline") return;
  const int64_t layers = run.is_mnist() ? kClassifierLayers : run.config.num_hidden_layers + 2;
  const int64_t stages = settings.world_size * (settings.schedule == "interleaved" ? 2 : 1);
  if (stages > layers) {
    throw UsageError(
        fmt::format("--parallel pipeline on {} ranks has {} stages, the model {} layers; hint: fewer "
                    "ranks, or more num_hidden_layers in --config",
                    settings.world_size, stages, layers));
  }
}

void require_own(const std::filesystem::path& file) {
  if (std::filesystem::exists(file)) return;
  throw UsageError(fmt::format("{} is missing; hint: name the folder of a run by --run-dir", file.string()));
}

std::string read_own(const std::filesystem::path& file) {
  constexpr uint64_t kMost = uint64_t{64} << 20;
  require_own(file);
  if (!std::filesystem::is_regular_file(file)) {
    throw UsageError(
        fmt::format("{}: is not a regular file; hint: name the folder of a run by --run-dir", file.string()));
  }
  return read_text(file, kMost);
}

[[noreturn]] void refuse_folder(const std::filesystem::path& folder, std::string_view what,
                                const std::string& reason) {
  throw UsageError(fmt::format("--run-dir {}: cannot be {}: {}; hint: name a folder that you may write",
                               folder.string(), what, reason));
}

void require_new(const Run& run) {
  if (std::filesystem::exists(run.folder / kRun)) {
    throw UsageError(
        fmt::format("--run-dir {} holds a run already; hint: --resume goes on with it, or name another",
                    run.folder.string()));
  }
  // A later --resume would take them for its own.
  if (!CheckpointStore(run.checkpoints()).checkpoints().empty()) {
    throw UsageError(fmt::format("--run-dir {} holds checkpoints of another run; hint: name another folder",
                                 run.folder.string()));
  }
}

Run prepare_new(const RunRequest& request, const Variables& environment, RunLock& lock) {
  Run run = {.folder = request.folder, .settings = settle(request.given)};
  require_new(run);
  if (!request.config_file.empty()) run.config = read_config(request.config_file);
  if (run.is_mnist() && !request.config_file.empty()) {
    throw UsageError(fmt::format(
        "--config {} with --data mnist, whose classifier has none; hint: leave it out", request.config_file));
  }
  require_fit(run);
  if (run.is_mnist()) {
    fetch(mnist(), environment);
  } else {
    run.tokenizer = make_tokenizer(run.settings, run.config, environment);
    run.config.vocab_size = run.tokenizer->vocab_size();
    load_language(run.settings, run.config, *run.tokenizer, environment);  // throws if there is too little
  }
  std::error_code error;
  std::filesystem::create_directories(run.folder, error);
  if (error) refuse_folder(run.folder, "made", error.message());
  lock.take(run.folder, std::chrono::milliseconds(0));
  require_new(run);  // another may have been quicker
  std::filesystem::create_directories(run.checkpoints(), error);
  if (error) refuse_folder(run.folder, "written", error.message());
  if (run.tokenizer) {
    write_run_file(run.folder / kTokenizer, run.tokenizer->to_json());
    write_run_file(run.folder / kConfig, to_json(run.config));
  } else {
    write_run_file(run.folder / kConfig, "{\n  \"layers\": [784, 128, 64, 10]\n}\n");
  }
  save_settings(run);
  return run;
}

Run prepare_again(const RunRequest& request, RunLock& lock) {
  Run run = lock.is_taken() ? read_run(request.folder) : lock_run(request.folder, lock);
  if (!request.config_file.empty() && run.config != read_config(request.config_file)) {
    throw UsageError(
        fmt::format("--config {} differs from the run's own; hint: leave it out, or begin a new run",
                    request.config_file));
  }
  run.settings = settle(request.given, run.settings);
  require_fit(run);
  return run;
}

}  // namespace

int64_t Run::microbatches() const {
  if (settings.accumulate > 0) return settings.accumulate;
  return settings.parallel == "pipeline" ? 4 : 1;
}

void RunLock::take(const std::filesystem::path& folder, std::chrono::milliseconds patience) {
  // No O_CLOEXEC: the ranks hold it too.
  const std::filesystem::path file = folder / ".lock";
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (fd < 0) refuse_folder(folder, "written", fmt::format("{}: {}", file.string(), std::strerror(errno)));
  fd_.reset(fd);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() >= deadline) {
      fd_.reset();
      throw UsageError(fmt::format(
          "--run-dir {}: another run is writing it at this moment; hint: wait for its end, or name "
          "another folder",
          folder.string()));
    }
    poll(nullptr, 0, 10);
  }
}

Run lock_run(const std::filesystem::path& folder, RunLock& lock) {
  require_own(folder / kRun);
  lock.take(folder, std::chrono::seconds(2));
  return read_run(folder);
}

Run prepare_run(const RunRequest& request, const Variables& environment, RunLock& lock) {
  return request.resume ? prepare_again(request, lock) : prepare_new(request, environment, lock);
}

void save_settings(const Run& run) {
  write_run_file(run.folder / kRun, to_json(run.settings));
}

void write_run_file(const std::filesystem::path& file, std::string_view text) {
  const int reason = launch::write_whole_file(file, text);
  if (reason == 0) return;
  throw Error(fmt::format("cannot write {}: {}; hint: make room, or name a folder that you may write",
                          file.string(), std::strerror(reason)));
}

std::string data_condition(const TrainSettings& settings, const std::string& fingerprint) {
  return fingerprint.empty() ? settings.data : fmt::format("{} of XXH3 {}", settings.data, fingerprint);
}

std::string data_condition(const TrainSettings& settings, const Variables& environment) {
  const bool is_own = settings.data == "grammar" || settings.data == "mnist";
  return data_condition(settings, is_own ? "" : fingerprint_of(text_of(settings, environment)));
}

Run read_run(const std::filesystem::path& folder) {
  Run run = {.folder = folder, .settings = parse_settings(read_own(folder / kRun), (folder / kRun).string())};
  if (run.is_mnist()) return run;
  run.config = parse_config(read_own(folder / kConfig), (folder / kConfig).string());
  run.tokenizer = Tokenizer::parse(read_own(folder / kTokenizer), (folder / kTokenizer).string());
  return run;
}

std::unique_ptr<Language> load_language(const TrainSettings& settings, const TransformerConfig& config,
                                        const Tokenizer& tokenizer, const Variables& environment) {
  const int64_t length = config.max_position_embeddings;
  if (settings.data == "grammar") {
    return std::make_unique<GrammarLanguage>(tokenizer, length, static_cast<uint64_t>(settings.seed));
  }
  return std::make_unique<TextLanguage>(text_of(settings, environment), tokenizer, length, settings.data);
}

}  // namespace lockstep::train
