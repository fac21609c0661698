#include "cli/bench_train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/sample.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

/// Of every round.
Sample sample_of(const TrainSystemResult& result, const std::function<double(const TrainRound&)>& value) {
  Sample sample;
  for (const auto& round : result.rounds) sample.add(value(round));
  return sample;
}

/// Of every round, what `above` took by what `below` took, in the same round.
Sample ratio_of(const TrainSystemResult& above, const TrainSystemResult& below) {
  Sample ratio;
  for (size_t round = 0; round < above.rounds.size(); ++round)
    ratio.add(above.rounds[round].round_ms / below.rounds[round].round_ms);
  return ratio;
}

Json spread_json(const Sample& sample) {
  return {{"median", sample.median()}, {"low", sample.low()}, {"high", sample.high()}};
}

std::string spread_text(const Json& spread, int digits) {
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", spread["median"].get<double>(), digits,
                     spread["low"].get<double>(), digits, spread["high"].get<double>(), digits);
}

Json row_json(const TrainSystemResult& result, int64_t steps, int64_t tokens) {
  const auto count = static_cast<double>(steps);
  const auto rate = [&](const TrainRound& round) {
    return 1e3 * count * static_cast<double>(tokens) / round.round_ms;
  };
  return {
      {"system", result.name},
      {"tokens_per_s", spread_json(sample_of(result, rate))},
      {"step_ms", spread_json(sample_of(result, [&](const auto& round) { return round.round_ms / count; }))},
      {"first_loss", result.losses.first},
      {"last_loss", result.losses.last}};
}

/// What saving costs: the time that rounds took with it by that of rounds without, as a user would see it;
/// and, less at the mercy of other programs, the part of a round in which a rank saved by the part in which
/// it trained.
Json checkpoints_json(const TrainBench& bench, const TrainSystems& systems, int64_t steps,
                      const TrainSystemResult& saving, const TrainSystemResult& plain) {
  Sample cost;
  for (size_t round = 0; round < plain.rounds.size(); ++round)
    cost.add(100 * (saving.rounds[round].round_ms / plain.rounds[round].round_ms - 1));
  const auto saves = static_cast<double>(steps / bench.checkpoint_every);
  const Sample save = sample_of(saving, [&](const auto& round) { return round.saving_ms / saves; });
  const Sample share = sample_of(
      saving, [](const auto& round) { return 100 * round.saving_ms / (round.round_ms - round.saving_ms); });
  return {{"every", bench.checkpoint_every},
          {"cost_percent", spread_json(cost)},
          {"save_ms", spread_json(save)},
          {"save_percent", spread_json(share)},
          {"in_memory", systems.saves_to_memory()}};
}

Json all_settings_json(const TrainBench& bench, const TrainSystems& systems, const BenchSettings& settings,
                       int64_t steps, size_t rounds) {
  const auto& run = systems.run();
  Json all = settings_json(settings);
  all.update({{"world", bench.world},
              {"engine", systems.engine()},
              {"batch", bench.batch},
              {"config", Json::parse(to_json(run.config))},
              {"parameters", parameter_count(run.config)},
              {"lr", run.settings.lr},
              {"steps", steps},
              {"rounds", rounds},
              {"check_steps", kTrainCheckSteps},
              {"loss_tolerance", kLossTolerance},
              {"shares_cores", shares_cores(settings)}});
  return all;
}

void print_train_head(const Json& document) {
  const Json& settings = document["settings"];
  const Json& config = settings["config"];
  fmt::print(
      "TinyTransformer of {} parameters ({}, {} wide, {} tokens), data parallel on {} over {}: batches of {} "
      "sequences of {} tokens, {} a round; {}, by turns; median (lowest to highest)\n",
      settings["parameters"].get<int64_t>(), counted(config["num_hidden_layers"], "layer"),
      config["hidden_size"].get<int64_t>(), config["vocab_size"].get<int64_t>(),
      counted(settings["world"], "rank"), settings["engine"].get<std::string>(),
      settings["batch"].get<int64_t>(), config["max_position_embeddings"].get<int64_t>(),
      counted(settings["steps"], "step"), counted(settings["rounds"], "round"));
  print_settings(settings);
  if (document["ratios"].empty()) {
    fmt::print("no peer: nothing that losses could be compared with; hint: --peers pytorch\n");
  } else {
    fmt::print("losses of all agree within {}, at the first step and after {} steps from the same weights\n",
               settings["loss_tolerance"].get<double>(), settings["check_steps"].get<int>());
  }
  if (settings["shares_cores"].get<bool>())
    fmt::print("more ranks than cores: they compute by turns, so that these times say little\n");
  fmt::print("\n");
}

void print_train_rows(const Json& rows) {
  const char* const line = "{:<16} {:<28} {:<26} {:>10} {:>10}\n";
  fmt::print(fmt::runtime(line), "system", "tokens a second", "step ms", "first loss", "last loss");
  for (const auto& row : rows) {
    fmt::print(fmt::runtime(line), row["system"].get<std::string>(), spread_text(row["tokens_per_s"], 0),
               spread_text(row["step_ms"], 2), fmt::format("{:.5f}", row["first_loss"].get<double>()),
               fmt::format("{:.5f}", row["last_loss"].get<double>()));
  }
  fmt::print("\n");
}

void print_checkpoints(const Json& checkpoints) {
  if (checkpoints.is_null()) return;
  fmt::print("a checkpoint every {} costs, in percent of the time without, {}\n",
             counted(checkpoints["every"], "step"), spread_text(checkpoints["cost_percent"], 2));
  fmt::print("  each takes {} ms: in percent of the steps that it was saved after, {}\n",
             spread_text(checkpoints["save_ms"], 2), spread_text(checkpoints["save_percent"], 2));
  if (checkpoints["in_memory"].get<bool>())
    fmt::print("checkpoints went to memory, which a disk is not as fast as; hint: TMPDIR names a folder\n");
}

}  // namespace

Json train_document(const TrainBench& bench, const TrainSystems& systems, const BenchSettings& settings,
                    int64_t steps, const std::vector<TrainSystemResult>& results) {
  const int64_t tokens = bench.batch * systems.run().config.max_position_embeddings;
  auto rows = Json::array(), ratios = Json::array();
  Json checkpoints;
  for (const auto& result : results) {
    rows.push_back(row_json(result, steps, tokens));
    if (result.name == kTrainSaving)
      checkpoints = checkpoints_json(bench, systems, steps, result, results.front());
    if (result.name != kTrainPytorch) continue;
    Json ratio = spread_json(ratio_of(result, results.front()));
    ratio["system"] = result.name;
    ratios.push_back(std::move(ratio));
  }
  return {{"rows", std::move(rows)},
          {"ratios", std::move(ratios)},
          {"checkpoints", std::move(checkpoints)},
          {"settings", all_settings_json(bench, systems, settings, steps, results.front().rounds.size())}};
}

void print_train(const Json& document) {
  print_train_head(document);
  print_train_rows(document["rows"]);
  for (const auto& ratio : document["ratios"]) {
    fmt::print("lockstep trains {} times as many tokens a second as {}\n", spread_text(ratio, 2),
               ratio["system"].get<std::string>());
  }
  print_checkpoints(document["checkpoints"]);
}

}  // namespace lockstep::cli
