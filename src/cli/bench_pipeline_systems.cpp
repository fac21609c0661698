#include "cli/bench_pipeline_systems.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "cli/bench_python.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

std::vector<double> by_rank(const std::vector<Json>& answers, const char* key) {
  std::vector<double> values;
  for (const auto& answer : answers) values.push_back(answer.value(key, 0.0));
  return values;
}

int64_t first_of(const std::vector<Json>& answers, const char* key, size_t step) {
  int64_t least = INT64_MAX;
  for (const auto& answer : answers) least = std::min(least, answer[key].at(step).get<int64_t>());
  return least;
}

int64_t last_of(const std::vector<Json>& answers, const char* key, size_t step) {
  int64_t most = INT64_MIN;
  for (const auto& answer : answers) most = std::max(most, answer[key].at(step).get<int64_t>());
  return most;
}

}  // namespace

PipelineSystems::PipelineSystems(const PipelineBench& bench, bool with_pytorch,
                                 const std::filesystem::path& commands)
    : bench_(bench), commands_(commands) {
  const auto torch = find_torch_command(commands);
  // Before anything is started: it may take the installation of a package.
  if (with_pytorch) require_python_torch(commands);
  std::ofstream(folder_.path() / "request.json") << Json(bench);
  start("lockstep", {torch.string(), "bench-pipeline-rank", folder_.path().string()});
  jobs_.at("lockstep")->ask({{"do", "build"}, {"writes_files", with_pytorch}});
  if (!with_pytorch) return;
  start("pytorch",
        {kDebianPython, find_peer(commands, "bench_pipeline_peer.py").string(), folder_.path().string()});
  jobs_.at("pytorch")->ask({{"do", "build"}});
  for (const char* file : {kPipelineWeightsFile, kPipelineInputFile, kPipelineTargetFile})
    std::filesystem::remove(folder_.path() / file);
}

void PipelineSystems::start(const std::string& job, const std::vector<std::string>& program) {
  jobs_[job] = start_system(job, bench_.stages, program, folder_.path(), commands_);
}

std::string PipelineSystems::name(size_t system) const {
  return system < bench_.rows.size() ? bench_.rows[system].schedule : kPytorchPipeline;
}

std::vector<Json> PipelineSystems::ask(size_t system, Json question) {
  if (system < bench_.rows.size()) question["row"] = system;
  return jobs_.at(system < bench_.rows.size() ? "lockstep" : "pytorch")->ask(question);
}

std::vector<double> PipelineSystems::train(size_t system, int64_t steps) {
  // The last rank has the losses.
  std::vector<double> losses;
  const auto answers = ask(system, {{"do", "check"}, {"steps", steps}});
  for (const auto& loss : answers.back()["losses"]) losses.push_back(number_of(loss));
  return losses;
}

PipelineRound PipelineSystems::time(size_t system, int64_t warm_up, int64_t steps) {
  const auto answers = ask(system, {{"do", "time"}, {"warm_up", warm_up}, {"steps", steps}});
  PipelineRound round = {.loss = number_of(answers.back()["loss"]),
                         .busy_ms = by_rank(answers, "busy_ms"),
                         .forward_ms = by_rank(answers, "forward_ms"),
                         .backward_ms = by_rank(answers, "backward_ms"),
                         .peak_activations = by_rank(answers, "peak_activations"),
                         .weight_bytes = by_rank(answers, "weight_bytes"),
                         .peak_bytes = by_rank(answers, "peak_bytes")};
  for (size_t step = 0; step < static_cast<size_t>(steps); ++step) {
    const int64_t taken_ns = last_of(answers, "end_ns", step) - first_of(answers, "begin_ns", step);
    round.step_ms += static_cast<double>(taken_ns) * 1e-6 / static_cast<double>(steps);
  }
  return round;
}

PipelineSpans PipelineSystems::spans(size_t row) {
  const auto answers = ask(row, {{"do", "spans"}});
  int64_t origin_ns = INT64_MAX;
  for (const auto& answer : answers) origin_ns = std::min(origin_ns, answer["begin_ns"].get<int64_t>());
  PipelineSpans spans;
  for (const auto& answer : answers) {
    const double begin_ms = static_cast<double>(answer["begin_ns"].get<int64_t>() - origin_ns) * 1e-6;
    std::vector<plan::ActionSpan> of_rank;
    for (const auto& span : answer["actions"]) {
      of_rank.push_back({.start = begin_ms + span.at(0).get<double>() * 1e3,
                         .end = begin_ms + span.at(1).get<double>() * 1e3});
    }
    spans.push_back(std::move(of_rank));
  }
  return spans;
}

}  // namespace lockstep::cli
