#include "train/run/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "lockstep/error.h"

namespace lockstep::train {

namespace {

using S = TrainSettings;
constexpr int64_t kMany = kMostTrainSteps;

template <typename Act>
void for_each_setting(const Act& act) {
  for (const auto& setting : text_settings()) act(setting);
  for (const auto& setting : whole_settings()) act(setting);
  for (const auto& setting : real_settings()) act(setting);
}

bool fits(const nlohmann::json& value, const Setting<std::string>& setting) {
  if (!value.is_string()) return false;
  const auto& all = setting.choices;
  return all.empty() || std::find(all.begin(), all.end(), value.get<std::string>()) != all.end();
}
/// A number in its bounds, or the standard, which may stand for "not said".
template <typename T>
bool fits(const nlohmann::json& value, const Setting<T>& setting) {
  if (std::is_integral_v<T> ? !value.is_number_integer() : !value.is_number()) return false;
  const T number = value.get<T>();
  return (number >= setting.low && number <= setting.high) || number == TrainSettings().*setting.field;
}

void require_whole(const TrainSettings& settings) {
  if (settings.steps > 0 && settings.epochs > 0) {
    throw UsageError(fmt::format("--steps {} and --epochs {}: both say how long; hint: give one",
                                 settings.steps, settings.epochs));
  }
  if (settings.data == "grammar" && settings.tokenizer == "bpe") {
    throw UsageError(
        "--tokenizer bpe with --data grammar: its entropy is known by character; hint: --tokenizer char");
  }
}

}  // namespace

const std::vector<Setting<std::string>>& text_settings() {
  static const std::vector<Setting<std::string>> all = {
      {"data", &S::data, "grammar, moby-dick, mnist, or a text file or folder", false, {}, {}, {}},
      {"tokenizer",
       &S::tokenizer,
       "char for grammar, bpe for other text, unless given",
       false,
       {},
       {},
       {"auto", "char", "bpe"}},
      {"parallel", &S::parallel, "How ranks share the work", true, {}, {}, {"ddp", "pipeline", "none"}},
      {"schedule", &S::schedule, "Of a pipeline", true, {}, {}, {"naive", "gpipe", "1f1b", "interleaved"}},
      {"engine", &S::engine, "", true, {}, {}, {}},
  };
  return all;
}

const std::vector<Setting<int64_t>>& whole_settings() {
  static const std::vector<Setting<int64_t>> all = {
      {"world_size", &S::world_size, "", true, 0, 1'000'000},
      {"steps", &S::steps, "Optimizer steps; else by --epochs, or as many as the data needs", true, 1, kMany},
      {"epochs", &S::epochs, "Passes over the data, in place of --steps", true, 1, kMany},
      {"batch", &S::batch, "Samples of a step, of all ranks together", false, 1, 1'000'000},
      {"accumulate", &S::accumulate, "Micro-batches of a step; else 1, and 4 in a pipeline", false, 1,
       65'536},
      {"warmup", &S::warmup, "Steps until the learning rate is reached", false, 0, kMany},
      {"seed", &S::seed, "Of weights, data and dropout", false, 0, std::numeric_limits<int64_t>::max()},
      {"checkpoint_every", &S::checkpoint_every, "Steps between checkpoints; 0: at the end alone", true, 0,
       kMany},
      {"keep", &S::keep, "Checkpoints that are kept", true, 1, kMany},
  };
  return all;
}

const std::vector<Setting<double>>& real_settings() {
  static const std::vector<Setting<double>> all = {
      {"lr", &S::lr, "Learning rate of AdamW, after warmup; falls to a tenth of it", false, 1e-12, 1000},
      {"clip", &S::clip, "The norm that gradients are clipped to; 0: not clipped", false, 0, 1e12},
      {"weight_decay", &S::weight_decay, "Of matrices", false, 0, 100},
  };
  return all;
}

std::string flag_of(std::string_view name) {
  std::string flag = fmt::format("--{}", name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

TrainSettings settle(const GivenSettings& given) {
  require_whole(given.values);
  return given.values;
}

TrainSettings settle(const GivenSettings& given, const TrainSettings& stored) {
  TrainSettings settled = stored;
  // Either says how long: the one that is given takes the other's place.
  if (given.names.contains("steps")) settled.epochs = 0;
  if (given.names.contains("epochs")) settled.steps = 0;
  for_each_setting([&](const auto& setting) {
    const auto& wanted = given.values.*setting.field;
    if (!given.names.contains(setting.name) || wanted == settled.*setting.field) return;
    if (!setting.may_change) {
      throw UsageError(
          fmt::format("{} {}: the run that goes on has {}; hint: leave the flag out, or begin a "
                      "new run in another --run-dir",
                      flag_of(setting.name), wanted, stored.*setting.field));
    }
    settled.*setting.field = wanted;
  });
  require_whole(settled);
  return settled;
}

std::vector<std::string> fixed_differences(const TrainSettings& now, const TrainSettings& then) {
  std::vector<std::string> found;
  for_each_setting([&](const auto& setting) {
    const auto &one = now.*setting.field, &other = then.*setting.field;
    if (!setting.may_change && one != other) {
      found.push_back(fmt::format("{} {}, was {}", setting.name, one, other));
    }
  });
  return found;
}

std::string to_json(const TrainSettings& settings) {
  auto document = nlohmann::ordered_json::object();
  for_each_setting([&](const auto& setting) { document[setting.name] = settings.*setting.field; });
  return document.dump(2) + "\n";
}

TrainSettings parse_settings(std::string_view json, const std::string& source) {
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(json);
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("{}: {}", source, error.what()));
  }
  if (!document.is_object()) throw UsageError(fmt::format("{}: no JSON object", source));
  TrainSettings settings;
  for_each_setting([&](const auto& setting) {
    const auto found = document.find(setting.name);
    if (found == document.end() && std::string_view(setting.name) == "engine")
      return;  // older runs have none
    if (found == document.end()) throw UsageError(fmt::format("{}: {} is missing", source, setting.name));
    if (!fits(*found, setting)) {
      throw UsageError(fmt::format("{}: {} is {}", source, setting.name,
                                   found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    }
    found->get_to(settings.*setting.field);
    document.erase(found);
  });
  if (!document.empty()) {
    throw UsageError(fmt::format("{}: {} is not known", source, document.begin().key()));
  }
  require_whole(settings);
  return settings;
}

}  // namespace lockstep::train
