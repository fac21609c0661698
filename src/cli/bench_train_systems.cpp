#include "cli/bench_train_systems.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <fstream>

#include "cli/bench_python.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

}  // namespace

TrainSystems::TrainSystems(const TrainBench& bench, const std::filesystem::path& commands)
    : bench_(bench), commands_(commands), run_(prepare_train_bench(bench, folder_.path())) {
  const auto torch = find_torch_command(commands);
  // Before anything is started: it may take the installation of a package.
  if (bench.with_pytorch) require_python_torch(commands);
  std::ofstream(folder_.path() / "request.json") << Json({{"batches", kTrainBatches},
                                                          {"config", Json::parse(to_json(run_.config))},
                                                          {"settings", Json::parse(to_json(run_.settings))}});
  start("lockstep", {torch.string(), "bench-train-rank", folder_.path().string()});
  const Json built =
      jobs_.at("lockstep")->ask({{"do", "build"}, {"writes_files", bench.with_pytorch}}).front();
  engine_ = built["engine"];
  if (!bench.with_pytorch) return;
  start("pytorch",
        {kDebianPython, find_peer(commands, "bench_train_peer.py").string(), folder_.path().string()});
  jobs_.at("pytorch")->ask({{"do", "build"}, {"weights", built["weights"]}});
}

void TrainSystems::start(const std::string& job, const std::vector<std::string>& program) {
  jobs_[job] = start_system(job, bench_.world, program, folder_.path(), commands_);
}

AskedJob& TrainSystems::job_of(const std::string& system) {
  return *jobs_.at(system == kTrainPytorch ? "pytorch" : "lockstep");
}

bool TrainSystems::saves_to_memory() const {
  struct statfs system = {};
  return statfs(run_.folder.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC;
}

std::vector<double> TrainSystems::train(const std::string& system, int64_t steps) {
  const auto answers = job_of(system).ask({{"do", "check"}, {"steps", steps}});
  std::vector<double> losses(static_cast<size_t>(steps));
  for (const auto& answer : answers) {
    // Losses alone would hardly tell: what ranks share of each other's gradients moves them little.
    if (answer["weights"] != answers[0]["weights"]) {
      throw Error(fmt::format("bench train: {}: after {} steps the weights of two ranks add up to {} and {}",
                              system, steps, answer["weights"].dump(), answers[0]["weights"].dump()));
    }
    for (size_t i = 0; i < losses.size(); ++i)
      losses[i] += number_of(answer["losses"].at(i)) / static_cast<double>(answers.size());
  }
  return losses;
}

TrainRound TrainSystems::time(const std::string& system, int64_t warm_up, int64_t steps) {
  const auto answers =
      job_of(system).ask({{"do", "time"},
                          {"warm_up", warm_up},
                          {"steps", steps},
                          {"checkpoint_every", system == kTrainSaving ? bench_.checkpoint_every : 0}});
  TrainRound round;
  for (const auto& answer : answers) {
    round.round_ms = std::max(round.round_ms, answer["round_ms"].get<double>());
    round.saving_ms = std::max(round.saving_ms, answer.value("saving_ms", 0.0));
  }
  return round;
}

}  // namespace lockstep::cli
