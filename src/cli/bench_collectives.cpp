#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/bench_kinds.h"
#include "cli/bench_lists.h"
#include "cli/bench_model.h"
#include "cli/bench_request.h"
#include "cli/copy_rate.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/sample.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

struct CollectiveBenchOptions {
  CollectiveBench bench;
  std::string engines = "shm";
  std::string algorithms;
  std::string sizes = "4,1KiB,64KiB,4MiB,64MiB";
  std::string model_file;
  JsonOutput json;
};

/// The rows of the table: by size, then by engine.
std::vector<BenchRow> asked_rows(const CollectiveBenchOptions& options) {
  const auto engines = parse_engines(options.engines);
  const auto buffers = options.bench.world * std::ssize(engines) * 2;
  const auto sizes = parse_sizes(options.sizes, buffers);
  std::vector<std::string> algorithms;
  if (!options.algorithms.empty()) {
    algorithms = parse_algorithms(options.bench.collective, options.algorithms, engines, sizes);
  }
  std::vector<BenchRow> rows;
  for (const int64_t bytes : sizes) {
    for (const auto& engine : engines) {
      const bool is_peer = engine != "shm" && options.bench.collective == "allreduce";
      const std::vector<std::string> usual = {is_peer ? "native" : ""};
      for (const auto& algorithm : algorithms.empty() ? usual : algorithms)
        rows.push_back({.engine = engine, .algorithm = algorithm, .bytes = bytes});
    }
  }
  return rows;
}

/// Rows to fit a model to: each asked row's plan at half and at one and a half times its size. No size that
/// was asked for is among them, so that no prediction has seen what it predicts.
std::vector<BenchRow> calibration_rows(const CollectiveBench& bench, const std::vector<BenchRow>& asked) {
  constexpr int64_t kElement = sizeof(float);
  std::vector<BenchRow> rows;
  for (const auto& row : asked) {
    const std::string plan = plan_of(bench, row);
    const int64_t count = row.bytes / kElement;
    for (const int64_t near : {count / 2, count + std::max<int64_t>(1, count / 2)}) {
      const BenchRow candidate = {
          .engine = row.engine, .algorithm = plan == "pingpong" ? "" : plan, .bytes = near * kElement};
      const auto same = [&](const BenchRow& other) {
        return other.engine == candidate.engine && other.algorithm == candidate.algorithm &&
               other.bytes == candidate.bytes;
      };
      const bool was_asked = std::any_of(
          asked.begin(), asked.end(), [&](const BenchRow& other) { return other.bytes == candidate.bytes; });
      const bool can_run =
          near > 0 && why_not(bench.collective, candidate.engine, plan, candidate.bytes).empty();
      if (can_run && !was_asked && std::none_of(rows.begin(), rows.end(), same)) rows.push_back(candidate);
    }
  }
  return rows;
}

Json row_json(const CollectiveBench& bench, const BenchRow& row, const RowTimes& times,
              std::optional<double> predicted) {
  const Sample time_us(times.times_us);
  const double bandwidth = static_cast<double>(row.bytes) / time_us.median() * 1e-3;
  const double bus_factor = kind_of(bench.collective, static_cast<int>(bench.world)).bus_factor;
  return {{"collective", bench.collective},
          {"engine", row.engine},
          {"algorithm", row.algorithm.empty() ? "auto" : row.algorithm},
          {"plan", plan_of(bench, row)},
          {"world", bench.world},
          {"bytes", row.bytes},
          {"time_us", time_us.median()},
          {"low_us", time_us.low()},
          {"high_us", time_us.high()},
          {"algbw_gbps", bandwidth},
          {"busbw_gbps", bandwidth * bus_factor},
          {"wrong", times.wrong},
          {"floor_us", times.floors_us.empty() ? Json() : Json(Sample(times.floors_us).median())},
          {"predicted_us", predicted ? Json(*predicted) : Json()}};
}

/// How much longer than shm each other engine takes, round by round.
Json ratios_json(const std::vector<BenchRow>& rows, const std::vector<RowTimes>& times) {
  auto ratios = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t ours = 0; ours < rows.size(); ++ours) {
      const bool pair =
          rows[ours].engine == "shm" && rows[i].engine != "shm" && rows[ours].bytes == rows[i].bytes;
      if (!pair) continue;
      Sample ratio;
      for (size_t round = 0; round < times[i].times_us.size(); ++round)
        ratio.add(times[i].times_us[round] / times[ours].times_us[round]);
      ratios.push_back({{"bytes", rows[i].bytes},
                        {"engine", rows[i].engine},
                        {"median", ratio.median()},
                        {"low", ratio.low()},
                        {"high", ratio.high()}});
    }
  }
  return ratios;
}

/// This machine's rate of copies as large as the messages, for those that memory rather than flags decides.
Json copies_json(const std::vector<BenchRow>& rows, int64_t world) {
  constexpr int64_t kLeast = 65536;
  auto cores = launch::allowed_cores();
  cores.resize(std::min(cores.size(), static_cast<size_t>(world)));
  auto copies = Json::array();
  int64_t last = 0;
  for (const auto& row : rows) {
    if (row.bytes < kLeast || row.bytes == last) continue;
    last = row.bytes;
    const CopyRate rate = measure_copy_rate_of(cores, static_cast<uint64_t>(row.bytes));
    copies.push_back({{"bytes", row.bytes},
                      {"one_core_gbps", rate.one_core * 1e-9},
                      {"cores", cores.size()},
                      {"all_cores_gbps", rate.all_cores * 1e-9}});
  }
  return copies;
}

void print_collective_rows(const Json& rows) {
  fmt::print("{:>10} {:<7} {:<18} {:>32} {:>12} {:>11} {:>11} {:>7} {:>9}\n", "bytes", "engine", "algorithm",
             "time us", "predicted us", "algbw GB/s", "busbw GB/s", "wrong", "of floor");
  for (const auto& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    const std::string time =
        fmt::format("{:.2f} ({:.2f} to {:.2f})", number("time_us"), number("low_us"), number("high_us"));
    const std::string floor = row["floor_us"].is_null()
                                  ? "-"
                                  : fmt::format("{:.0f}%", 100 * number("floor_us") / number("time_us"));
    const std::string predicted =
        row["predicted_us"].is_null() ? "-" : fmt::format("{:.2f}", number("predicted_us"));
    fmt::print("{:>10} {:<7} {:<18} {:>32} {:>12} {:>11.3f} {:>11.3f} {:>7} {:>9}\n",
               row["bytes"].get<int64_t>(), row["engine"].get<std::string>(),
               row["algorithm"].get<std::string>(), time, predicted, number("algbw_gbps"),
               number("busbw_gbps"), row["wrong"].get<int64_t>(), floor);
  }
}

void print(const CollectiveBenchOptions& options, const Json& document) {
  fmt::print("{} over {} ranks, {} rounds alternated between the engines; time: median (lowest to highest)\n",
             options.bench.collective, options.bench.world, options.bench.rounds);
  fmt::print("{}\n\n",
             options.bench.staged ? "buffers outside of shared memory" : "buffers by Communicator::allocate");
  print_collective_rows(document["rows"]);
  for (const auto& ratio : document["ratios"]) {
    fmt::print("{:>10} bytes: {} takes {:.2f} times as long as shm ({:.2f} to {:.2f} over rounds)\n",
               ratio["bytes"].get<int64_t>(), ratio["engine"].get<std::string>(),
               ratio["median"].get<double>(), ratio["low"].get<double>(), ratio["high"].get<double>());
  }
  fmt::print("\n");
  for (const auto& copy : document["copies"]) {
    fmt::print(
        "copy bandwidth of this machine at {} bytes: {:.1f} GB/s on one core, {:.1f} GB/s on {} cores at "
        "once\n",
        copy["bytes"].get<int64_t>(), copy["one_core_gbps"].get<double>(),
        copy["all_cores_gbps"].get<double>(), copy["cores"].get<int>());
  }
  fmt::print("predicted: {}\n", document["prediction"].get<std::string>());
  fmt::print(
      "of floor: the share of the time that the same loads, additions and stores take on private memory, on "
      "all\n"
      "  ranks at once, in the same rounds; the rest is flags and lines in other cores' caches\n");
}

/// The model to predict by, if it is in a file; refused if it does not know one of the rows.
std::optional<SavedModel> given_model(const CollectiveBenchOptions& options,
                                      const std::vector<BenchRow>& rows) {
  if (options.model_file.empty()) return std::nullopt;
  SavedModel saved = load_model(options.model_file);
  for (const auto& row : rows) {
    if (predicted_us(saved.model, options.bench, row)) continue;
    throw UsageError(fmt::format("--model {}: knows nothing of '{}'; hint: lockstep bench --fit --engines {}",
                                 options.model_file, form_of(options.bench, row, plan_of(options.bench, row)),
                                 row.engine));
  }
  return saved;
}

int bench_collectives(CollectiveBenchOptions& options) {
  if (options.bench.collective == "pingpong" && options.bench.world < 2)
    throw UsageError("--world 1: pingpong takes two; hint: --world 2");
  const auto asked = asked_rows(options);
  const auto given = given_model(options, asked);
  const auto calibration = given ? std::vector<BenchRow>() : calibration_rows(options.bench, asked);
  options.bench.rows = asked;
  options.bench.rows.insert(options.bench.rows.end(), calibration.begin(), calibration.end());

  const Json copies = copies_json(asked, options.bench.world);
  const auto times = run_bench_ranks(options.bench);
  std::vector<plan::Measurement> measurements;
  for (size_t i = asked.size(); i < times.size(); ++i) {
    measurements.push_back(
        measurement_of(options.bench, options.bench.rows[i], Sample(times[i].times_us).median()));
  }
  const plan::Model model = given ? given->model : plan::fit(measurements);
  auto rows = Json::array();
  for (size_t i = 0; i < asked.size(); ++i)
    rows.push_back(row_json(options.bench, asked[i], times[i], predicted_us(model, options.bench, asked[i])));
  const std::string prediction =
      given ? fmt::format("by the model in {}, fitted on {} ranks", options.model_file, given->world)
            : "by a model fitted in this run to half and one and a half times the sizes, never to a size "
              "itself";
  const Json document = {{"rows", std::move(rows)},
                         {"ratios", ratios_json(asked, times)},
                         {"copies", copies},
                         {"prediction", prediction}};
  if (options.json.prints_text()) print(options, document);
  options.json.write(document);
  const bool wrong =
      std::any_of(times.begin(), times.end(), [](const RowTimes& row) { return row.wrong != 0; });
  return wrong ? 1 : 0;
}

Action define(Flags flags, const char* collective) {
  const auto options = std::make_shared<CollectiveBenchOptions>();
  options->bench.collective = collective;
  flags.number("--world", options->bench.world, 1, 64, "Ranks");
  flags.text("--engines", options->engines, "Engines, taken by turns: shm, gloo, mpi", "LIST");
  flags.text("--algorithms", options->algorithms, "Algorithms; without, each engine's own choice", "LIST");
  flags.text("--sizes", options->sizes, "Bytes of each rank's buffer", "LIST");
  flags.number("--rounds", options->bench.rounds, 1, 1000, "Rounds, alternated between the engines");
  flags.toggle("--staged", options->bench.staged, "Use buffers outside of shared memory");
  flags.text("--model", options->model_file,
             "Predict by this model of bench --fit; without, by one fitted on the way", "FILE");
  options->json.add_to(flags);
  return
      [options](const Invocation&) { return until_interrupted([&] { return bench_collectives(*options); }); };
}

}  // namespace

Action define_bench_allreduce(Flags flags) {
  return define(flags, "allreduce");
}
Action define_bench_broadcast(Flags flags) {
  return define(flags, "broadcast");
}
Action define_bench_allgather(Flags flags) {
  return define(flags, "allgather");
}
Action define_bench_reducescatter(Flags flags) {
  return define(flags, "reducescatter");
}
Action define_bench_alltoall(Flags flags) {
  return define(flags, "alltoall");
}
Action define_bench_pingpong(Flags flags) {
  return define(flags, "pingpong");
}

}  // namespace lockstep::cli
