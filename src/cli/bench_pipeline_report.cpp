#include "cli/bench_pipeline_report.h"
#include "cli/percent.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "cli/sample.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

using Value = std::function<double(const PipelineMeasurement&)>;

Sample sample_of(const PipelineResult& result, const Value& value) {
  Sample sample;
  for (const auto& measured : result.measured) sample.add(value(measured));
  return sample;
}

/// The median over rounds, by rank.
std::vector<double> by_rank(const PipelineResult& result, std::vector<double> PipelineRound::*member) {
  std::vector<double> medians;
  for (size_t rank = 0; rank < (result.measured.front().round.*member).size(); ++rank) {
    medians.push_back(
        sample_of(result, [&](const auto& each) { return (each.round.*member)[rank]; }).median());
  }
  return medians;
}

double step_ms(const PipelineMeasurement& measured) {
  return measured.round.step_ms;
}

/// Idle time of the rank that has most to do, as a part of the step.
double bubble_of_total(const PipelineMeasurement& measured) {
  const auto& busy = measured.round.busy_ms;
  return 1 - *std::max_element(busy.begin(), busy.end()) / measured.round.step_ms;
}

Json ratio_json(const std::string& slower, const std::string& faster, const PipelineResult& above,
                const PipelineResult& below) {
  Sample ratio, predicted;
  for (size_t round = 0; round < above.measured.size(); ++round) {
    ratio.add(step_ms(above.measured[round]) / step_ms(below.measured[round]));
    predicted.add(above.measured[round].predicted.makespan / below.measured[round].predicted.makespan);
  }
  Json json = {{"slower", slower},
               {"faster", faster},
               {"median", ratio.median()},
               {"low", ratio.low()},
               {"high", ratio.high()}};
  // Nothing is predicted of a peer, nor of stages that take no time.
  if (above.measured.front().predicted.makespan > 0) json["predicted"] = predicted.median();
  return json;
}

Json row_json(const PipelineBench& bench, const PipelineResult& result) {
  const Sample taken = sample_of(result, step_ms);
  return {{"system", result.name},
          {"model", bench.sleeps() ? "sleep" : bench.model.name()},
          {"stages", bench.stages},
          {"microbatches", bench.microbatches},
          {"batch", bench.model.batch},
          {"step_ms", taken.median()},
          {"step_ms_min", taken.low()},
          {"step_ms_max", taken.high()},
          {"loss", result.measured.back().round.loss}};
}

Json schedule_json(const PipelineBench& bench, const PipelineRow& row, const PipelineResult& result) {
  const plan::PipelinePlan plan = bench.plan_of(row);
  size_t actions = 0;
  for (const auto& of_rank : plan.actions) actions = std::max(actions, of_rank.size());
  const plan::PipelineSimulation& predicted = result.measured.back().predicted;
  const auto busy = by_rank(result, &PipelineRound::busy_ms);
  std::vector<double> utilisation;
  for (const double ms : busy) utilisation.push_back(ms / sample_of(result, step_ms).median());
  Json json = row_json(bench, result);
  json.update({
      {"schedule", row.schedule},
      {"chunks", row.chunks},
      {"predicted_ms", sample_of(result, [](const auto& each) { return each.predicted.makespan; }).median()},
      {"bubble_of_total", sample_of(result, bubble_of_total).median()},
      {"predicted_bubble_of_total",
       sample_of(result, [](const auto& each) { return each.predicted.bubble_of_total; }).median()},
      {"utilisation", utilisation},
      {"predicted_utilisation", predicted.utilisation},
      {"peak_activations", by_rank(result, &PipelineRound::peak_activations)},
      {"predicted_peak_activations", predicted.peak_activations},
      {"weight_bytes", by_rank(result, &PipelineRound::weight_bytes)},
      {"peak_bytes", by_rank(result, &PipelineRound::peak_bytes)},
      {"forward_ms", by_rank(result, &PipelineRound::forward_ms)},
      {"backward_ms", by_rank(result, &PipelineRound::backward_ms)},
      {"actions", actions},
      {"us_per_action_beyond_prediction", sample_of(result,
                                                    [&](const auto& each) {
                                                      return (step_ms(each) - each.predicted.makespan) * 1e3 /
                                                             static_cast<double>(actions);
                                                    })
                                              .median()},
  });
  return json;
}

/// In a unit, with so many digits after the point; as many as it takes if none are given.
std::string listed(const Json& values, double unit = 1, int digits = -1) {
  std::vector<std::string> texts;
  for (const auto& value : values) {
    const double number = value.get<double>() / unit;
    texts.push_back(digits < 0 ? fmt::format("{:g}", number) : fmt::format("{:.{}f}", number, digits));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

void print_pipeline_head(const Json& document) {
  const Json& row = document["rows"][0];
  const Json& settings = document["settings"];
  const auto times = settings["sleep_ms"].get<std::vector<double>>();
  const std::string model =
      times.empty()
          ? fmt::format("{}, batch {}", row["model"].get<std::string>(), row["batch"].get<int64_t>())
          : fmt::format("stages that sleep for F {}, I {}, W {} ms", times[0], times[1], times[2]);
  fmt::print("pipeline of {}, {} over {}: {}; {}, by turns; ms: median (lowest to highest)\n",
             counted(row["stages"], "rank"),
             row["microbatches"] == 1 ? "1 micro-batch"
                                      : fmt::format("{} micro-batches", row["microbatches"].get<int64_t>()),
             settings["engine"].get<std::string>(), model, counted(settings["rounds"], "round"));
  print_settings(settings);
  fmt::print("losses of all agree within {}, at the first step and after {} steps from the same weights\n",
             settings["loss_tolerance"].get<double>(), settings["check_steps"].get<int>());
  if (settings["shares_cores"].get<bool>()) {
    fmt::print(
        "more ranks than cores: they compute by turns, so that these times say little; hint: --sleep "
        "4,4,4\n");
  }
  fmt::print("\n");
}

using Table = std::vector<std::vector<std::string>>;

/// Each column as wide as its widest cell.
void print_table(const Table& table) {
  std::vector<size_t> widths;
  for (const auto& line : table) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : table) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) text += fmt::format("{:<{}}", line[i], widths[i] + 3);
    fmt::print("{}\n", text.substr(0, text.find_last_not_of(' ') + 1));
  }
}

void print_pipeline_rows(const Json& rows) {
  Table table = {{"schedule", "step ms", "predicted ms", "off", "bubble", "predicted", "us an action"}};
  for (const auto& row : rows) {
    table.push_back(
        {row["system"], fmt::format("{:.2f} ({:.2f} to {:.2f})", row["step_ms"].get<double>(),
                                    row["step_ms_min"].get<double>(), row["step_ms_max"].get<double>())});
    if (!row.contains("schedule")) continue;
    const double predicted = row["predicted_ms"];
    for (const std::string& cell :
         {fmt::format("{:.2f}", predicted),
          predicted > 0 ? percent(row["step_ms"].get<double>() / predicted - 1) : std::string("-"),
          percent(row["bubble_of_total"]), percent(row["predicted_bubble_of_total"]),
          fmt::format("{:.1f}", row["us_per_action_beyond_prediction"].get<double>())}) {
      table.back().push_back(cell);
    }
  }
  print_table(table);
  fmt::print(
      "predicted: by the simulator, from {} times of F and B; messages take none. bubble: the idle part of "
      "the step, of the busiest rank. us an action: what the step takes beyond the prediction, by action\n",
      rows[0]["model"] == "sleep" ? "the given" : "each round's own");
}

void print_ranks(const Json& rows) {
  constexpr double kMiB = 1 << 20;
  const bool sleeps = rows[0]["model"] == "sleep";
  Table table = {{"by rank", "utilisation %", "activations", "predicted", "F ms", "B ms"}};
  if (!sleeps) table.front().insert(table.front().end(), {"MiB of weights", "peak MiB of the rest"});
  for (const auto& row : rows) {
    if (!row.contains("schedule")) continue;
    table.push_back({row["system"], listed(row["utilisation"], 0.01, 1), listed(row["peak_activations"]),
                     listed(row["predicted_peak_activations"]), listed(row["forward_ms"], 1, 2),
                     listed(row["backward_ms"], 1, 2)});
    if (sleeps) continue;
    table.back().push_back(listed(row["weight_bytes"], kMiB, 1));
    // Of shared memory alone the bytes are counted.
    table.back().push_back(row["peak_bytes"][0] == 0 ? "-" : listed(row["peak_bytes"], kMiB, 1));
  }
  fmt::print("\n");
  print_table(table);
}

void print_ratios(const Json& ratios) {
  if (!ratios.empty()) fmt::print("\n");
  for (const auto& ratio : ratios) {
    fmt::print("{} takes {:.2f} ({:.2f} to {:.2f}) times as long as {}", ratio["slower"].get<std::string>(),
               ratio["median"].get<double>(), ratio["low"].get<double>(), ratio["high"].get<double>(),
               ratio["faster"].get<std::string>());
    if (ratio.contains("predicted")) fmt::print("; predicted {:.2f}", ratio["predicted"].get<double>());
    fmt::print("\n");
  }
}

}  // namespace

Json pipeline_document(const PipelineBench& bench, const BenchSettings& settings,
                       const std::vector<PipelineResult>& results) {
  auto rows = Json::array(), ratios = Json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    rows.push_back(i < bench.rows.size() ? schedule_json(bench, bench.rows[i], results[i])
                                         : row_json(bench, results[i]));
  }
  const auto named = [&](const std::string& name) {
    return std::find_if(results.begin(), results.end(), [&](const auto& each) { return each.name == name; });
  };
  if (const auto naive = named("naive"); naive != results.end()) {
    for (size_t i = 0; i < bench.rows.size(); ++i) {
      if (bench.rows[i].schedule != "naive")
        ratios.push_back(ratio_json("naive", results[i].name, *naive, results[i]));
    }
  }
  const auto peer = named(kPytorchPipeline), own = named("1f1b");
  if (peer != results.end() && own != results.end())
    ratios.push_back(ratio_json(kPytorchPipeline, "1f1b", *peer, *own));
  Json all = settings_json(settings);
  all.update({{"engine", bench.engine},
              {"rounds", results.front().measured.size()},
              {"check_steps", kPipelineCheckSteps},
              {"loss_tolerance", kLossTolerance},
              {"sleep_ms", bench.sleep_ms},
              {"shares_cores", !bench.sleeps() && shares_cores(settings)}});
  return {{"rows", std::move(rows)}, {"ratios", std::move(ratios)}, {"settings", std::move(all)}};
}

void print_pipeline(const Json& document) {
  print_pipeline_head(document);
  print_pipeline_rows(document["rows"]);
  print_ranks(document["rows"]);
  print_ratios(document["ratios"]);
}

}  // namespace lockstep::cli
