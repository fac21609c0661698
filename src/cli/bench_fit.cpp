#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/bench_lists.h"
#include "cli/bench_model.h"
#include "cli/bench_request.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/sample.h"
#include "cli/size.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"
#include "transport/engines.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

constexpr double kErrorToReach = 0.25;
constexpr double kRegretToReach = 1.15;
constexpr size_t kLeastSizes = 5;  // three to fit, two held out

struct FitOptions {
  CollectiveBench bench = {.collective = "allreduce", .rounds = 5};
  std::string engines;
  std::string sizes;
  std::string save_file;
  JsonOutput json;
};

/// A row with its times.
struct Timed {
  BenchRow row;
  double time_us = 0;       ///< The median.
  double predicted_us = 0;  ///< By the model.
  bool held_out = false;
};

/// What was taken for one engine and one held-out size, as indices of the rows.
struct Pick {
  size_t best = 0;           ///< The least measured.
  size_t models = 0;         ///< The least predicted.
  size_t communicators = 0;  ///< What the communicator runs by itself.
};

std::string built_engines() {
  std::string list;
  for (const auto& engine : transport::engines()) {
    if (engine.built && engine.name != "threads")
      list += fmt::format("{}{}", list.empty() ? "" : ",", engine.name);
  }
  return list;
}

std::string doubling_sizes() {
  std::string list;
  for (int64_t bytes = 16; bytes <= 16 << 20; bytes *= 2) list += fmt::format("{},", bytes);
  return list;
}

/// All that an all-reduce can be by. Plans in rank order first: of equal predictions the first is picked, and
/// their sums depend on nothing but the data.
std::vector<std::string> candidates(int world) {
  std::vector<std::string> rank_order, others;
  for (const auto& algorithm : plan::algorithms_of(plan::Collective::kAllReduce)) {
    if (algorithm.name == "hierarchical") continue;  // it takes several hosts
    const bool in_rank_order = algorithm.make({.world = world}).order == plan::Order::kRank;
    (in_rank_order ? rank_order : others).emplace_back(algorithm.name);
  }
  std::reverse(rank_order.begin(), rank_order.end());  // the simplest, which come first, are the slowest
  rank_order.insert(rank_order.end(), others.begin(), others.end());
  rank_order.emplace_back("native");
  return rank_order;
}

std::vector<BenchRow> rows_of(const FitOptions& options) {
  const auto engines = parse_engines(options.engines);
  auto sizes = parse_sizes(options.sizes, options.bench.world * std::ssize(engines));
  if (sizes.size() < kLeastSizes) {
    throw UsageError(
        fmt::format("--sizes {}: {} sizes; hint: at least {}, of which every second one is held out",
                    options.sizes, sizes.size(), kLeastSizes));
  }
  std::sort(sizes.begin(), sizes.end());
  const auto world = static_cast<int>(options.bench.world);
  std::vector<BenchRow> rows;
  for (const int64_t bytes : sizes) {
    for (const auto& engine : engines) {
      for (const auto& algorithm : candidates(world)) {
        if (why_not(options.bench.collective, engine, algorithm, bytes).empty())
          rows.push_back({engine, algorithm, bytes});
      }
    }
  }
  return rows;
}

/// Rows come by rising size; every second size is held out, the first and the last never are.
std::vector<Timed> timed_rows(const std::vector<BenchRow>& rows, const std::vector<RowTimes>& times) {
  std::vector<Timed> timed;
  size_t size_index = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0 && rows[i].bytes != rows[i - 1].bytes) ++size_index;
    timed.push_back({.row = rows[i],
                     .time_us = Sample(times[i].times_us).median(),
                     .held_out = size_index % 2 == 1 && rows[i].bytes != rows.back().bytes});
  }
  return timed;
}

double error_of(const Timed& timed) {
  return std::abs(timed.predicted_us - timed.time_us) / timed.time_us;
}

/// The picks of one engine, by size.
std::vector<Pick> picks_of(const CollectiveBench& bench, const std::string& engine,
                           const std::vector<Timed>& rows) {
  std::vector<Pick> picks;
  int64_t bytes = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const BenchRow& row = rows[i].row;
    if (!rows[i].held_out || row.engine != engine) continue;
    if (row.bytes != bytes) picks.push_back({.best = i, .models = i, .communicators = i});
    bytes = row.bytes;
    Pick& pick = picks.back();
    if (rows[i].time_us < rows[pick.best].time_us) pick.best = i;
    if (rows[i].predicted_us < rows[pick.models].predicted_us) pick.models = i;
    if (row.algorithm == plan_of(bench, {.engine = engine, .algorithm = "", .bytes = bytes}))
      pick.communicators = i;
  }
  return picks;
}

Json held_out_json(const std::vector<Timed>& rows) {
  auto document = Json::array();
  for (const auto& timed : rows) {
    if (!timed.held_out) continue;
    document.push_back({{"engine", timed.row.engine},
                        {"algorithm", timed.row.algorithm},
                        {"bytes", timed.row.bytes},
                        {"time_us", timed.time_us},
                        {"predicted_us", timed.predicted_us},
                        {"error", error_of(timed)}});
  }
  return document;
}

Json engine_json(const CollectiveBench& bench, const std::string& engine, const std::vector<Timed>& rows) {
  Sample error, regret, own_regret;
  auto picks = Json::array();
  for (const auto& timed : rows) {
    if (timed.held_out && timed.row.engine == engine) error.add(error_of(timed));
  }
  for (const auto& pick : picks_of(bench, engine, rows)) {
    const double best_us = rows[pick.best].time_us;
    regret.add(rows[pick.models].time_us / best_us);
    own_regret.add(rows[pick.communicators].time_us / best_us);
    picks.push_back({{"bytes", rows[pick.best].row.bytes},
                     {"best", rows[pick.best].row.algorithm},
                     {"best_us", best_us},
                     {"models_pick", rows[pick.models].row.algorithm},
                     {"models_us", rows[pick.models].time_us},
                     {"communicators_choice", rows[pick.communicators].row.algorithm},
                     {"communicators_us", rows[pick.communicators].time_us}});
  }
  return {{"engine", engine},
          {"median_error", error.median()},
          {"median_regret", regret.median()},
          {"worst_regret", regret.high()},
          {"median_regret_of_communicator", own_regret.median()},
          {"picks", std::move(picks)}};
}

void print_parameters(const plan::Model& model) {
  const auto rate = [](double s_per_byte) {
    return s_per_byte > 0 ? fmt::format("{:.3f}", 1e-9 / s_per_byte) : "free";
  };
  fmt::print("{:<18} {:>12} {:>10} {:>12} {:>12} {:>12}\n", "form", "message from", "to bytes", "latency us",
             "moves GB/s", "adds GB/s");
  for (const auto& [form, regimes] : model.forms) {
    double from = 0;
    for (const auto& [up_to_bytes, network] : regimes) {
      const bool is_last = up_to_bytes == regimes.back().up_to_bytes;
      fmt::print("{:<18} {:>12.0f} {:>10} {:>12.3f} {:>12} {:>12}\n", form, from,
                 is_last ? "any" : fmt::format("{:.0f}", up_to_bytes), network.between.latency_s * 1e6,
                 rate(network.between.s_per_byte), rate(network.reduce_s_per_byte));
      from = up_to_bytes;
    }
  }
}

void print_picks(const Json& engines) {
  fmt::print("\n{:>10} {:<7} {:<26} {:<26} {}\n", "bytes", "engine", "best, us", "model's pick, of best",
             "communicator's choice, of best");
  for (const auto& engine : engines) {
    for (const auto& pick : engine["picks"]) {
      const double best_us = pick["best_us"];
      const auto with = [&](const char* name, const char* time) {
        return fmt::format("{} {:.2f}", pick[name].get<std::string>(), pick[time].get<double>() / best_us);
      };
      fmt::print("{:>10} {:<7} {:<26} {:<26} {}\n", pick["bytes"].get<int64_t>(),
                 engine["engine"].get<std::string>(),
                 fmt::format("{} {:.2f}", pick["best"].get<std::string>(), best_us),
                 with("models_pick", "models_us"), with("communicators_choice", "communicators_us"));
    }
  }
}

void print(const FitOptions& options, const plan::Model& model, const Json& document) {
  fmt::print("allreduce over {} ranks, {} rounds, every row in each; time: median\n", options.bench.world,
             options.bench.rounds);
  fmt::print("fitted to every second size, judged by the sizes between, which are held out\n\n");
  print_parameters(model);
  fmt::print("\n{:>10} {:<7} {:<18} {:>12} {:>12} {:>7}\n", "held out", "engine", "algorithm", "time us",
             "predicted us", "error");
  for (const auto& row : document["held_out"]) {
    fmt::print("{:>10} {:<7} {:<18} {:>12.2f} {:>12.2f} {:>6.0f}%\n", row["bytes"].get<int64_t>(),
               row["engine"].get<std::string>(), row["algorithm"].get<std::string>(),
               row["time_us"].get<double>(), row["predicted_us"].get<double>(),
               100 * row["error"].get<double>());
  }
  print_picks(document["engines"]);
  fmt::print("\n");
  for (const auto& engine : document["engines"]) {
    const double error = engine["median_error"];
    const double regret = engine["median_regret"];
    fmt::print(
        "{}: median error {:.0f}% (to reach: {:.0f}%{}), regret {:.2f} (to reach: {:.2f}{}), at worst "
        "{:.2f}\n",
        engine["engine"].get<std::string>(), 100 * error, 100 * kErrorToReach,
        error <= kErrorToReach ? "" : ", not reached", regret, kRegretToReach,
        regret <= kRegretToReach ? "" : ", not reached", engine["worst_regret"].get<double>());
  }
}

int bench_fit(FitOptions& options) {
  if (!options.save_file.empty()) check_writable("--save", options.save_file);
  options.bench.rows = rows_of(options);
  const auto times = run_bench_ranks(options.bench);
  auto rows = timed_rows(options.bench.rows, times);
  std::vector<plan::Measurement> measurements;
  for (const auto& timed : rows) {
    if (!timed.held_out) measurements.push_back(measurement_of(options.bench, timed.row, timed.time_us));
  }
  const plan::Model model = plan::fit(measurements);
  for (auto& timed : rows) timed.predicted_us = *predicted_us(model, options.bench, timed.row);

  Json document = {{"world", options.bench.world},
                   {"rounds", options.bench.rounds},
                   {"forms", Json::parse(to_json(model))},
                   {"held_out", held_out_json(rows)},
                   {"engines", Json::array()}};
  for (const auto& engine : parse_engines(options.engines))
    document["engines"].push_back(engine_json(options.bench, engine, rows));
  int64_t wrong = 0;
  for (const auto& row : times) wrong += row.wrong;
  document["wrong"] = wrong;
  if (options.json.prints_text()) print(options, model, document);
  options.json.write(document);
  if (!options.save_file.empty()) save_model(options.save_file, {model, options.bench.world});
  if (wrong == 0) return 0;
  fmt::print(stderr, "lockstep bench --fit: {} elements of the results are wrong\n", wrong);
  return 1;
}

}  // namespace

Action define_bench_fit(Flags flags) {
  const auto options = std::make_shared<FitOptions>();
  options->engines = built_engines();
  flags.number("--world", options->bench.world, 2, 64, "Ranks");
  flags.text("--engines", options->engines, "Engines to fit", "LIST");
  flags.text("--sizes", options->sizes,
             "Bytes of each rank's buffer; every second size is held out (default 16 to 16MiB, doubling)",
             "LIST");
  flags.number("--rounds", options->bench.rounds, 1, 1000,
               "Rounds, each through all engines, algorithms and sizes");
  flags.text("--save", options->save_file, "Write the model here, for bench allreduce --model", "FILE");
  options->json.add_to(flags);
  return [options](const Invocation&) {
    if (options->sizes.empty()) options->sizes = doubling_sizes();
    return until_interrupted([&] { return bench_fit(*options); });
  };
}

}  // namespace lockstep::cli
