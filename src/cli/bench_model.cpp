#include "cli/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "cli/json_output.h"
#include "comms/request.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"

namespace lockstep::cli {

std::string plan_of(const CollectiveBench& bench, const BenchRow& row) {
  if (bench.collective == "pingpong") return bench.collective;
  if (!row.algorithm.empty()) return row.algorithm;
  const comms::Request request = {
      .collective = plan::find_collective(bench.collective),
      .input = {nullptr, row.bytes / static_cast<int64_t>(sizeof(float)), DataType::kFloat32},
      .output = {}};
  const bool shares = row.engine == "shm" && (!bench.staged || bench.collective == "allreduce");
  return std::string(comms::usual_algorithm(request, row.engine, static_cast<int>(bench.world), shares));
}

std::string form_of(const CollectiveBench& bench, const BenchRow& row, const std::string& plan) {
  const bool is_own =
      plan == "native" ||
      (plan != "pingpong" && plan::find_algorithm(plan::find_collective(bench.collective), plan).one_sided);
  return fmt::format("{} {}", row.engine, is_own ? plan : "messages");
}

plan::CostTerms terms_of(const CollectiveBench& bench, const BenchRow& row, const std::string& plan) {
  const auto bytes = static_cast<double>(row.bytes);
  if (plan == "native") return {.rounds = 1, .bytes = bytes};
  if (plan == "pingpong") return {.rounds = 2, .bytes = 2 * bytes};
  const auto world = static_cast<int>(bench.world);
  const plan::Plan made = plan::make_plan(plan::find_collective(bench.collective), plan,
                                          {.world = world, .ranks_per_node = world});
  const auto count = std::max<int64_t>(1, row.bytes / static_cast<int64_t>(sizeof(float)));
  // Of an all-to-all a chunk is what one rank has for another.
  return plan::cost_terms(made, bench.collective == "alltoall" ? (count + world - 1) / world : count);
}

plan::Measurement measurement_of(const CollectiveBench& bench, const BenchRow& row, double time_us) {
  const std::string plan = plan_of(bench, row);
  return {.form = form_of(bench, row, plan), .terms = terms_of(bench, row, plan), .time_s = time_us * 1e-6};
}

std::optional<double> predicted_us(const plan::Model& model, const CollectiveBench& bench,
                                   const BenchRow& row) {
  const std::string plan = plan_of(bench, row);
  const auto time_s = model.time_s(form_of(bench, row, plan), terms_of(bench, row, plan));
  return time_s ? std::optional(*time_s * 1e6) : std::nullopt;
}

void save_model(const std::string& file, const SavedModel& saved) {
  write_json("--save", file,
             {{"world", saved.world}, {"forms", nlohmann::json::parse(to_json(saved.model))}});
}

SavedModel load_model(const std::string& file) {
  const auto refuse = [&](const std::string& reason) {
    throw UsageError(
        fmt::format("--model {}: {}; hint: lockstep bench --fit --save FILE makes one", file, reason));
  };
  std::ifstream stream(file);
  if (!stream) refuse("cannot be read");
  const auto document = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("forms") || !document.contains("world") ||
      !document["world"].is_number_integer()) {
    refuse("is no model");
  }
  try {
    return {.model = plan::model_from_json(document["forms"].dump()), .world = document["world"]};
  } catch (const UsageError& error) {
    refuse(error.what());
  }
  return {};
}

}  // namespace lockstep::cli
