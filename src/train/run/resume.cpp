#include "train/run/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/strict_json.h"
#include "train/run/metrics.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

nlohmann::json read_json(const fs::path& file) {
  return parse_strict(read_text(file, kMostJsonBytes), file.string());
}

/// The keys whose values differ in a file that both the run and the checkpoint have.
void add_differences(const Run& run, const fs::path& checkpoint, const char* name,
                     std::vector<std::string>& found) {
  if (!fs::exists(checkpoint / name) && !fs::exists(run.folder / name)) return;
  const auto now = read_json(run.folder / name), then = read_json(checkpoint / name);
  auto keys = now;
  keys.update(then);
  for (const auto& [key, value] : keys.items()) {
    const auto one = now.value(key, nlohmann::json()), other = then.value(key, nlohmann::json());
    if (one == other) continue;
    found.push_back(fmt::format("{} of {} {}, was {}", key, name, shown_json(one), shown_json(other)));
  }
}

void require_same_run(const Run& run, const Resumption& found) {
  const fs::path& folder = found.checkpoint->folder;
  auto different = fixed_differences(run.settings, found.state.settings);
  for (const char* name : {"config.json", "tokenizer.json"}) add_differences(run, folder, name, different);
  if (different.empty()) return;
  throw UsageError(fmt::format(
      "--resume: {} was saved by another run than {} describes: {}; hint: undo the change, or begin "
      "a new run in another --run-dir",
      folder.string(), run.folder.string(), fmt::join(different, "; ")));
}

/// The learning rate follows how long a run is.
void note_length(const Run& run, Resumption& found) {
  const auto note = [&](const char* name, int64_t now, int64_t then) {
    if (now == then) return;
    found.notes.push_back(fmt::format("{} {}, was {} when {} was saved", name, now, then,
                                      found.checkpoint->folder.filename().string()));
  };
  note("steps", run.settings.steps, found.state.settings.steps);
  note("epochs", run.settings.epochs, found.state.settings.epochs);
}

/// Why there must have been a checkpoint; "" if there need not.
std::string trace_of_checkpoints(const Run& run) {
  std::error_code ignored;
  if (!fs::exists(run.checkpoints(), ignored)) return "its folder checkpoints is missing";
  if (fs::exists(run.folder / "summary.json", ignored)) return "summary.json says that it had saved one";
  if (!fs::exists(run.metrics(), ignored)) return "";
  // As the folder has it: a flag may have changed it since those steps.
  const int64_t every = read_run(run.folder).settings.checkpoint_every;
  if (every == 0) return "";
  const auto steps = read_metrics(run.metrics());
  if (steps.empty() || steps.back().step <= every) return "";
  return fmt::format("metrics.jsonl has step {}, past the checkpoint of step {}", steps.back().step, every);
}

}  // namespace

SavedState read_state(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "state.json";
  const auto state = read_json(file);
  for (const char* key : {"settings", "conditions"}) {
    if (!state.contains(key)) throw Error(fmt::format("{}: {} are missing", file.string(), key));
  }
  SavedState saved = {.settings = parse_settings(state["settings"].dump(), file.string())};
  for (const auto& [name, value] : state["conditions"].items()) {
    if (!value.is_string()) {
      throw Error(fmt::format("{}: {} is {}, expected a text", file.string(), name, shown_json(value)));
    }
    saved.conditions[name] = value;
  }
  const auto loss = state.find("loss");
  if (loss == state.end() || !loss->is_number()) {
    throw Error(fmt::format("{}: the loss is {}, expected a number", file.string(),
                            loss == state.end() ? "missing" : shown_json(*loss)));
  }
  saved.loss = *loss;
  return saved;
}

Resumption find_resumption(const Run& run) {
  const auto found = CheckpointStore(run.checkpoints()).find();
  Resumption answer = {.checkpoint = found.checkpoint, .notes = found.refused};
  if (found.checkpoint) {
    answer.state = read_state(found.checkpoint->folder);
    require_same_run(run, answer);
    note_length(run, answer);
    return answer;
  }
  auto reasons = found.refused;
  if (const auto trace = trace_of_checkpoints(run); !trace.empty()) reasons.push_back(trace);
  if (reasons.empty()) return answer;
  throw UsageError(fmt::format(
      "--resume: {} has no whole checkpoint any more: {}; hint: to start over, begin a new run in "
      "another --run-dir",
      run.folder.string(), fmt::join(reasons, "; ")));
}

void require_steps(int64_t steps, int64_t done) {
  if (steps >= done) return;
  throw UsageError(fmt::format("the checkpoint is of step {}, the run has {}; hint: more --steps or --epochs",
                               done, steps));
}

std::vector<std::string> differences(const Conditions& now, const Conditions& then) {
  std::vector<std::string> found;
  for (const auto& [name, value] : now) {
    const auto before = then.find(name);
    if (before != then.end() && before->second == value) continue;
    found.push_back(
        fmt::format("{} {}, was {}", name, value, before == then.end() ? "not recorded" : before->second));
  }
  return found;
}

void require_same_bits(int64_t step, const std::vector<std::string>& differences) {
  if (differences.empty()) return;
  throw UsageError(
      fmt::format("the checkpoint of step {} was made under other conditions, so that its steps would "
                  "not come out the same to the bit: {}; hint: --inexact goes on nevertheless",
                  step, fmt::join(differences, "; ")));
}

}  // namespace lockstep::train
