#include "cli/bench_ddp_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/sample.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

template <typename Item>
Sample sample_of(const std::vector<Item>& items, double Item::*member) {
  Sample sample;
  for (const auto& item : items) sample.add(item.*member);
  return sample;
}

Json row_json(const DdpBench& bench, const DdpModelResult& result, const DdpSystemResult& system) {
  const Sample step_ms = sample_of(system.rounds, &DdpRound::step_ms);
  return {{"system", system.losses.system},
          {"model", result.model.name()},
          {"world", system.losses.system == "libtorch" ? 1 : bench.world},
          {"batch", result.model.batch},
          {"optimizer", bench.optimizer},
          {"step_ms", step_ms.median()},
          {"step_ms_min", step_ms.low()},
          {"step_ms_max", step_ms.high()},
          {"first_loss", system.losses.first},
          {"last_loss", system.losses.last},
          {"wire_bytes", ddp_wire_bytes(bench, result, system)},
          {"exposed_comm_ms", sample_of(system.rounds, &DdpRound::exposed_ms).median()}};
}

/// How much longer than Lockstep's a peer's step takes, round by round.
Json ratio_json(const DdpModelResult& result, const DdpSystemResult& system) {
  Sample ratio;
  for (size_t round = 0; round < system.rounds.size(); ++round)
    ratio.add(system.rounds[round].step_ms / result.systems[0].rounds[round].step_ms);
  return {{"model", result.model.name()}, {"batch", result.model.batch}, {"system", system.losses.system},
          {"median", ratio.median()},     {"low", ratio.low()},          {"high", ratio.high()}};
}

Json part_json(const std::string& part, const Sample& taken, Json floor_ms, const std::string& floor) {
  return {{"part", part},
          {"ms", taken.median()},
          {"ms_min", taken.low()},
          {"ms_max", taken.high()},
          {"floor_ms", std::move(floor_ms)},
          {"floor", floor}};
}

/// Where Lockstep's step goes.
Json breakdown_json(const DdpBench& bench, const DdpModelResult& result) {
  const auto& rounds = result.systems[0].rounds;
  Sample rest;
  for (const auto& round : rounds)
    rest.add(round.step_ms - round.forward_ms - round.backward_ms - round.exposed_ms - round.optimizer_ms);
  const int64_t wire_bytes = ddp_wire_bytes(bench, result, result.systems[0]);
  const double copy_ms = 1e3 / result.copy_rate;
  auto parts = Json::array();
  parts.push_back(part_json("forward", sample_of(rounds, &DdpRound::forward_ms),
                            sample_of(result.floors, &DdpFloor::forward_ms).median(),
                            "its matrix products alone"));
  parts.push_back(part_json("backward", sample_of(rounds, &DdpRound::backward_ms),
                            sample_of(result.floors, &DdpFloor::backward_ms).median(),
                            "its matrix products alone"));
  parts.push_back(part_json("exposed communication", sample_of(rounds, &DdpRound::exposed_ms),
                            static_cast<double>(wire_bytes) * copy_ms,
                            fmt::format("{} bytes at the copy rate", wire_bytes)));
  // Adam loads weight, gradient and two moments and stores all but the gradient; SGD has one moment.
  parts.push_back(part_json(
      "optimizer", sample_of(rounds, &DdpRound::optimizer_ms),
      sample_of(result.floors, &DdpFloor::optimizer_ms).median(),
      fmt::format("its loads and stores alone, {} bytes a parameter", bench.optimizer == "sgd" ? 20 : 28)));
  parts.push_back(part_json("the rest", rest, Json(), ""));
  double floor_ms = 0;
  for (const auto& part : parts) floor_ms += part["floor_ms"].is_null() ? 0 : part["floor_ms"].get<double>();
  return {{"model", result.model.name()},
          {"batch", result.model.batch},
          {"floor_ms", floor_ms},
          {"parameters", result.model.parameter_count()},
          {"steps_per_round", result.steps},
          {"copy_gbps_per_rank", result.copy_rate * 1e-9},
          {"parts", std::move(parts)}};
}

Json all_settings_json(const DdpBench& bench, const BenchSettings& settings, size_t rounds) {
  Json all = settings_json(settings);
  all.update({{"engine", bench.engine},
              {"lr", bench.lr},
              {"bucket_cap_mib", bench.bucket_cap_mib},
              {"overlap", bench.overlap},
              {"rounds", rounds},
              {"check_steps", kDdpCheckSteps},
              {"loss_tolerance", kLossTolerance}});
  return all;
}

void print_ddp_head(const Json& document) {
  const Json& settings = document["settings"];
  const Json& row = document["rows"][0];
  fmt::print("data parallel training on {} over {}, {} at {}; {}, by turns; ms: median (lowest to highest)\n",
             counted(row["world"], "rank"), settings["engine"].get<std::string>(),
             row["optimizer"].get<std::string>(), settings["lr"].get<double>(),
             counted(settings["rounds"], "round"));
  print_settings(settings);
  if (document["ratios"].empty()) {
    fmt::print("no peer to compare losses with; hint: --peers pytorch,libtorch\n\n");
    return;
  }
  fmt::print(
      "losses of all systems agree within {}, at the first step and after {} steps from the same "
      "weights\n\n",
      settings["loss_tolerance"].get<double>(), settings["check_steps"].get<int>());
}

void print_ddp_rows(const Json& document) {
  fmt::print("{:<14} {:>6}  {:<18} {:<26} {:<24} {:>11} {:>11} {:>12} {:>12}\n", "model", "batch", "system",
             "step ms", "times lockstep's", "first loss", "last loss", "wire bytes", "exposed ms");
  for (const auto& row : document["rows"]) {
    std::string ratio = "-";
    for (const auto& each : document["ratios"]) {
      if (each["model"] != row["model"] || each["batch"] != row["batch"] || each["system"] != row["system"])
        continue;
      ratio = fmt::format("{:.2f} ({:.2f} to {:.2f})", each["median"].get<double>(),
                          each["low"].get<double>(), each["high"].get<double>());
    }
    const std::string step = fmt::format("{:.2f} ({:.2f} to {:.2f})", row["step_ms"].get<double>(),
                                         row["step_ms_min"].get<double>(), row["step_ms_max"].get<double>());
    fmt::print("{:<14} {:>6}  {:<18} {:<26} {:<24} {:>11.6g} {:>11.6g} {:>12} {:>12.2f}\n",
               row["model"].get<std::string>(), row["batch"].get<int64_t>(), row["system"].get<std::string>(),
               step, ratio, row["first_loss"].get<double>(), row["last_loss"].get<double>(),
               row["wire_bytes"].get<int64_t>(), row["exposed_comm_ms"].get<double>());
  }
}

void print_breakdown(const Json& model) {
  fmt::print(
      "\nlockstep's step of {} with batches of {}: {} parameters, {} steps a round; a rank copies {:.1f} "
      "GB/s\n",
      model["model"].get<std::string>(), model["batch"].get<int64_t>(), model["parameters"].get<int64_t>(),
      model["steps_per_round"].get<int64_t>(), model["copy_gbps_per_rank"].get<double>());
  fmt::print("  {:<22} {:<26} {:>9}  {}\n", "part", "ms", "floor ms", "the floor is");
  for (const auto& part : model["parts"]) {
    const std::string taken = fmt::format("{:.2f} ({:.2f} to {:.2f})", part["ms"].get<double>(),
                                          part["ms_min"].get<double>(), part["ms_max"].get<double>());
    const std::string floor =
        part["floor_ms"].is_null() ? "-" : fmt::format("{:.2f}", part["floor_ms"].get<double>());
    fmt::print("  {:<22} {:<26} {:>9}  {}\n", part["part"].get<std::string>(), taken, floor,
               part["floor"].get<std::string>());
  }
}

/// How near the step is to what this machine can do, and how far ahead of a peer it could be at most.
void print_bound(const Json& model, const Json& rows) {
  const auto row_of = [&](const char* system) {
    return std::find_if(rows.begin(), rows.end(), [&](const Json& row) {
      return row["system"] == system && row["model"] == model["model"] && row["batch"] == model["batch"];
    });
  };
  const double floor_ms = model["floor_ms"];
  const double step_ms = (*row_of("lockstep"))["step_ms"];
  fmt::print("  all floors together are {:.2f} ms: {:.0f}% of the step", floor_ms, 100 * floor_ms / step_ms);
  if (const auto peer = row_of("pytorch-ddp"); peer != rows.end()) {
    fmt::print("; at the floors pytorch-ddp would take {:.2f} times as long",
               (*peer)["step_ms"].get<double>() / floor_ms);
  }
  fmt::print("\n");
}

}  // namespace

Json ddp_document(const DdpBench& bench, const BenchSettings& settings,
                  const std::vector<DdpModelResult>& results) {
  auto rows = Json::array(), ratios = Json::array(), breakdown = Json::array();
  for (const auto& result : results) {
    for (const auto& system : result.systems) {
      rows.push_back(row_json(bench, result, system));
      if (system.losses.system != "lockstep") ratios.push_back(ratio_json(result, system));
    }
    breakdown.push_back(breakdown_json(bench, result));
  }
  const size_t rounds = results.front().systems.front().rounds.size();
  return {{"rows", std::move(rows)},
          {"ratios", std::move(ratios)},
          {"breakdown", std::move(breakdown)},
          {"settings", all_settings_json(bench, settings, rounds)}};
}

void print_ddp(const Json& document) {
  print_ddp_head(document);
  print_ddp_rows(document);
  for (const auto& model : document["breakdown"]) {
    print_breakdown(model);
    print_bound(model, document["rows"]);
  }
}

}  // namespace lockstep::cli
