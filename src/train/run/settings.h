#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

/// The most that --steps takes.
inline constexpr int64_t kMostTrainSteps = 1'000'000'000;

/// What a run trains on and how: everything of `lockstep train` that decides numbers. It is kept as the run's
/// run.json.
struct TrainSettings {
  std::string data = "grammar";
  std::string tokenizer = "auto";
  std::string parallel = "ddp";
  std::string schedule = "1f1b";
  std::string engine;      ///< "": from the topology.
  int64_t world_size = 0;  ///< Ranks; 0: not settled yet.
  int64_t steps = 0;       ///< 0: epochs decide, or the data's own default.
  int64_t epochs = 0;
  int64_t batch = 64;
  int64_t accumulate = 0;  ///< 0: 1, and 4 in a pipeline.
  int64_t warmup = 50;
  int64_t seed = 0;
  int64_t checkpoint_every = 200;
  int64_t keep = 3;
  double lr = 3e-3;
  double clip = 1;
  double weight_decay = 0.01;

  bool operator==(const TrainSettings&) const = default;
};

/// One of them: its name in run.json, whose flag has dashes for underscores.
template <typename T>
struct Setting {
  const char* name;
  T TrainSettings::*field;
  const char* help;
  bool may_change;  ///< By a run that goes on: the steps that it has done would have been the same.
  T low;            ///< Of what is given; the standard may be less, and then says nothing.
  T high;
  std::vector<std::string> choices;  ///< Of a text; none: any.
};

const std::vector<Setting<std::string>>& text_settings();
const std::vector<Setting<int64_t>>& whole_settings();
const std::vector<Setting<double>>& real_settings();

/// "checkpoint_every" -> "--checkpoint-every".
std::string flag_of(std::string_view name);

/// What the user typed, and which of it.
struct GivenSettings {
  TrainSettings values;
  std::set<std::string> names;
};

/// The settings of a new run. Throws UsageError if flags contradict each other.
TrainSettings settle(const GivenSettings& given);

/// The settings of a run that goes on: its own, but for what is given. Throws UsageError, naming flag and
/// both values, for one that a run cannot change.
TrainSettings settle(const GivenSettings& given, const TrainSettings& stored);

/// Each setting that a run cannot change and that differs: "seed 6, was 5".
std::vector<std::string> fixed_differences(const TrainSettings& now, const TrainSettings& then);

std::string to_json(const TrainSettings& settings);
/// What to_json() wrote. Throws UsageError naming `source`, key and value.
TrainSettings parse_settings(std::string_view json, const std::string& source);

}  // namespace lockstep::train
