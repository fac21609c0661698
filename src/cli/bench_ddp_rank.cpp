#include "cli/bench_ddp_rank.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <optional>

#include "cli/asked_job.h"
#include "cli/bench_ddp_floor.h"
#include "cli/bench_ddp_training.h"
#include "cli/bench_hello.h"
#include "cli/torch_verbs.h"
#include "lockstep/comms/init.h"
#include "lockstep/comms/shared_allocator.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

/// Answers the benchmark's questions for Lockstep, or for one LibTorch process alone.
class DdpRank {
 public:
  DdpRank(const DdpRankOptions& options, DdpBench bench, int rank)
      : folder_(options.folder), bench_(std::move(bench)), rank_(rank) {
    if (options.system == "lockstep") comm_ = init_distributed({.engine = bench_.engine});
  }

  Json answer(const Json& question) {
    const std::string what = question["do"];
    if (what == "hello") return bench_hello();
    if (what == "build") return build(question["model"]);
    if (what == "check") return check(question["steps"]);
    if (what == "time") return time(question["warm_up"], question["steps"]);
    if (what == "floor") return floor(question["steps"]);
    throw Error(fmt::format("bench-ddp-rank: asked to do '{}'", what));
  }

 private:
  Json build(size_t model) {
    training_.reset();  // the old model goes before the new one comes
    floor_.reset();
    data_ = make_ddp_data(bench_, model, rank_);
    const FullMLP module = make_ddp_model(bench_, model);
    model_ = model;
    if (comm_) {
      write_ddp_files(folder_, model, rank_, module, data_);
      training_ = make_data_parallel(bench_, module, *comm_);
    } else {
      training_ = make_single(bench_, module);
    }
    return Json::object();
  }

  /// One process does what all ranks do together if it trains on all of their samples.
  Json check(int64_t steps) {
    const DdpData data = comm_ ? data_ : make_whole_ddp_data(bench_, model_);
    DdpStepTimes ignored;
    auto losses = Json::array();
    for (int64_t i = 0; i < steps; ++i) losses.push_back(training_->step(data, ignored).item<double>());
    return {{"losses", losses}, {"weights", training_->sum_of_weights()}};
  }

  Json time(int64_t warm_up, int64_t steps) {
    DdpStepTimes ignored, times;
    training_->meet();
    for (int64_t i = 0; i < warm_up; ++i) training_->step(data_, ignored);
    training_->meet();
    at::Tensor loss;
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) loss = training_->step(data_, times);
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    const auto count = static_cast<double>(steps);
    return {{"step_ms", taken.count() / count},
            {"forward_ms", times.forward_us * 1e-3 / count},
            {"backward_ms", times.backward_us * 1e-3 / count},
            {"exposed_ms", times.exposed_us * 1e-3 / count},
            {"optimizer_ms", times.optimizer_us * 1e-3 / count},
            {"bucket_bytes", training_->bucket_bytes()},
            {"loss", loss.item<double>()}};
  }

  /// Each part on all ranks at once.
  Json floor(int64_t steps) {
    if (!floor_) floor_.emplace(bench_.models[model_], bench_.optimizer);
    const auto measure = [&](double (DdpStepFloor::*part)(int64_t)) {
      ((*floor_).*part)(1);
      training_->meet();
      return ((*floor_).*part)(steps);
    };
    return {{"forward_ms", measure(&DdpStepFloor::forward_ms)},
            {"backward_ms", measure(&DdpStepFloor::backward_ms)},
            {"optimizer_ms", measure(&DdpStepFloor::optimizer_ms)}};
  }

  const std::string folder_;
  const DdpBench bench_;
  const int rank_;
  std::optional<Communicator> comm_;
  size_t model_ = 0;
  DdpData data_;
  std::unique_ptr<DdpTraining> training_;
  std::optional<DdpStepFloor> floor_;
};

}  // namespace

int run_bench_ddp_rank(const DdpRankOptions& options, const Invocation&) {
  const std::string request = options.folder + "/request.json";
  std::ifstream stream(request);
  if (!stream) throw UsageError(fmt::format("{}: cannot be read", request));
  const int number = identify().rank;
  AskedRank pipes(options.folder, options.system, number);
  DdpRank rank(options, Json::parse(stream).get<DdpBench>(), number);
  while (const auto question = pipes.next()) {
    // The ranks beside a single process keep its place among the cores, and sleep.
    const bool idle = options.system == "libtorch" && number != 0;
    pipes.answer(idle ? Json::object() : rank.answer(*question));
  }
  return 0;
}

}  // namespace lockstep::cli
