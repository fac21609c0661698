#include "cli/bench_ddp_systems.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "cli/bench_python.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

/// Who runs a system; PyTorch's two share their processes.
std::string job_name(const std::string& system) {
  return system.starts_with("pytorch") ? "pytorch" : system;
}

/// The answers that count: of a single process, its own.
std::vector<Json> answers_of(const std::string& system, std::vector<Json> answers) {
  if (system == "libtorch") answers.resize(1);
  return answers;
}

/// Over ranks; 0 for what a system does not tell.
double mean(const std::vector<Json>& answers, const char* key) {
  double sum = 0;
  for (const auto& answer : answers) sum += answer.contains(key) ? number_of(answer[key]) : 0;
  return sum / static_cast<double>(answers.size());
}

}  // namespace

DdpSystems::DdpSystems(const DdpBench& bench, const std::vector<std::string>& peers,
                       const std::filesystem::path& commands)
    : bench_(bench), commands_(commands) {
  names_.insert(names_.end(), peers.begin(), peers.end());
  const auto torch = find_torch_command(commands);
  // Before anything is started: it may take the installation of a package.
  if (std::any_of(names_.begin(), names_.end(), [](const auto& name) { return job_name(name) == "pytorch"; }))
    require_python_torch(commands);
  std::ofstream(folder_.path() / "request.json") << Json(bench);
  for (const auto& system : names_) {
    const std::string job = job_name(system);
    if (jobs_.contains(job)) continue;
    if (job == "pytorch") {
      start(job, {kDebianPython, find_peer(commands, "bench_ddp_peer.py").string(), folder_.path().string()});
    } else {
      start(job, {torch.string(), "bench-ddp-rank", folder_.path().string(), job});
    }
  }
}

void DdpSystems::start(const std::string& job, const std::vector<std::string>& program) {
  jobs_[job] = start_system(job, bench_.world, program, folder_.path(), commands_);
}

AskedJob& DdpSystems::job_of(const std::string& system) {
  return *jobs_.at(job_name(system));
}

BenchSettings DdpSystems::settings() {
  return compare_settings("bench ddp", jobs_);
}

void DdpSystems::build(size_t model) {
  const Json question = {{"do", "build"}, {"model", model}, {"systems", names_}};
  jobs_.at("lockstep")->ask(question);  // writes what the others read
  for (const auto& [name, job] : jobs_) {
    if (name != "lockstep") job->ask(question);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    if (entry.path().extension() == ".f32") std::filesystem::remove(entry.path());
  }
}

std::vector<double> DdpSystems::train(const std::string& system, int64_t steps) {
  const auto answers =
      answers_of(system, job_of(system).ask({{"do", "check"}, {"system", system}, {"steps", steps}}));
  for (const auto& answer : answers) {
    // Losses alone would hardly tell: what ranks share of each other's gradients moves them by a percent.
    if (answer["weights"] == answers[0]["weights"]) continue;
    throw Error(fmt::format("bench ddp: {}: after {} steps the weights of two ranks add up to {} and {}",
                            system, steps, answer["weights"].dump(), answers[0]["weights"].dump()));
  }
  std::vector<double> losses(static_cast<size_t>(steps));
  for (const auto& answer : answers) {
    for (size_t i = 0; i < losses.size(); ++i)
      losses[i] += number_of(answer["losses"].at(i)) / static_cast<double>(answers.size());
  }
  return losses;
}

DdpRound DdpSystems::time(const std::string& system, int64_t warm_up, int64_t steps) {
  const auto answers = answers_of(
      system,
      job_of(system).ask({{"do", "time"}, {"system", system}, {"warm_up", warm_up}, {"steps", steps}}));
  DdpRound round = {.forward_ms = mean(answers, "forward_ms"),
                    .backward_ms = mean(answers, "backward_ms"),
                    .exposed_ms = mean(answers, "exposed_ms"),
                    .optimizer_ms = mean(answers, "optimizer_ms"),
                    .loss = mean(answers, "loss")};
  for (const auto& answer : answers) round.step_ms = std::max(round.step_ms, answer["step_ms"].get<double>());
  if (answers[0].contains("bucket_bytes")) answers[0]["bucket_bytes"].get_to(round.bucket_bytes);
  return round;
}

DdpFloor DdpSystems::floor(int64_t steps) {
  const auto answers = jobs_.at("lockstep")->ask({{"do", "floor"}, {"steps", steps}});
  return {.forward_ms = mean(answers, "forward_ms"),
          .backward_ms = mean(answers, "backward_ms"),
          .optimizer_ms = mean(answers, "optimizer_ms")};
}

}  // namespace lockstep::cli
