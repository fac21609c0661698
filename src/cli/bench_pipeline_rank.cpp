#include "cli/bench_pipeline_rank.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "cli/asked_job.h"
#include "cli/bench_hello.h"
#include "cli/bench_pipeline_stages.h"
#include "cli/torch_verbs.h"
#include "lockstep/comms/init.h"
#include "lockstep/comms/shared_allocator.h"
#include "lockstep/comms/shared_memory.h"
#include "lockstep/error.h"
#include "lockstep/launch/identity.h"
#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/trace/writer.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;

/// This rank's part of a model that a schedule trains.
class PipelineTraining {
 public:
  PipelineTraining(const PipelineBench& bench, const PipelineRow& row, const Communicator& comm)
      : stages_(make_pipeline_stages(bench, row, comm.rank())),
        pipeline_(stages_, comm, mean_squared_error,
                  {.schedule = row.schedule, .microbatches = static_cast<int>(bench.microbatches)}) {
    for (const auto& stage : stages_) {
      for (const auto& parameter : stage->parameters()) parameters_.push_back(parameter);
    }
  }

  /// Forward and backward; the loss, on the last rank.
  at::Tensor step(const PipelineBatch& batch) {
    forget_gradients();
    return pipeline_.step(batch.input, batch.target);
  }

  void forget_gradients() {
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
  }

  void update() {
    constexpr double kRate = 0.01;
    const at::NoGradGuard guard;
    for (auto& parameter : parameters_) {
      if (parameter.grad().defined()) parameter.sub_(parameter.grad(), kRate);
    }
  }

  size_t weight_bytes() const {
    size_t sum = 0;
    for (const auto& parameter : parameters_) sum += parameter.nbytes();
    return sum;
  }
  const PipelineReport& report() const { return pipeline_.report(); }
  const std::vector<plan::Action>& actions(int rank) const {
    return pipeline_.plan().actions[static_cast<size_t>(rank)];
  }

 private:
  std::vector<AnyModel> stages_;
  std::vector<at::Tensor> parameters_;
  Pipeline pipeline_;
};

/// Answers the benchmark's questions.
class PipelineRank {
 public:
  PipelineRank(const PipelineRankOptions& options, PipelineBench bench)
      : folder_(options.folder),
        bench_(std::move(bench)),
        comm_(init_distributed({.engine = bench_.engine})) {}

  Json answer(const Json& question) {
    const std::string what = question["do"];
    if (what == "hello") return bench_hello();
    if (what == "build") return build(question["writes_files"]);
    PipelineTraining& training = *trainings_.at(question["row"]);
    if (what == "check") return check(training, question["steps"]);
    if (what == "time") return time(training, question["warm_up"], question["steps"]);
    if (what == "spans") return spans(training);
    throw Error(fmt::format("bench-pipeline-rank: asked to do '{}'", what));
  }

 private:
  Json build(bool writes_files) {
    if (writes_files && comm_.rank() == 0) write_pipeline_files(folder_, bench_);
    batch_ = make_pipeline_batch(bench_);
    for (const auto& row : bench_.rows)
      trainings_.push_back(std::make_unique<PipelineTraining>(bench_, row, comm_));
    return Json::object();
  }

  Json check(PipelineTraining& training, int64_t steps) {
    auto losses = Json::array();
    for (int64_t i = 0; i < steps; ++i) {
      const at::Tensor loss = training.step(batch_);
      if (loss.defined()) losses.push_back(loss.item<double>());
      training.update();
    }
    return {{"losses", losses}};
  }

  Json time(PipelineTraining& training, int64_t warm_up, int64_t steps) {
    for (int64_t i = 0; i < warm_up; ++i) training.step(batch_);
    std::vector<int64_t> begin_ns, end_ns;
    double forward_ms = 0, backward_ms = 0, loss = 0;
    size_t peak_bytes = 0;
    for (int64_t i = 0; i < steps; ++i) {
      training.forget_gradients();  // they are part of what a step needs
      const size_t used_bytes = shared_memory_use().used_bytes;
      restart_shared_memory_peak();
      comm_.barrier();
      begin_ns.push_back(trace::now_ns());
      const at::Tensor result = training.step(batch_);
      end_ns.push_back(trace::now_ns());
      peak_bytes = std::max(peak_bytes, shared_memory_use().peak_used_bytes - used_bytes);
      if (result.defined()) loss = result.item<double>();
      const auto& actions = training.actions(comm_.rank());
      for (size_t at = 0; at < actions.size(); ++at) {
        const plan::ActionSpan& span = training.report().actions[at];
        const double taken_ms = (span.end - span.start) * 1e3;
        if (actions[at].kind == plan::ActionKind::kForward) forward_ms += taken_ms;
        if (actions[at].kind == plan::ActionKind::kBackward) backward_ms += taken_ms;
      }
    }
    const auto forwards = static_cast<double>(steps * bench_.microbatches);
    return {{"begin_ns", begin_ns},
            {"end_ns", end_ns},
            {"busy_ms", (forward_ms + backward_ms) / static_cast<double>(steps)},
            {"forward_ms", forward_ms / forwards},
            {"backward_ms", backward_ms / forwards},
            {"peak_activations", training.report().peak_activations},
            {"weight_bytes", training.weight_bytes()},
            {"peak_bytes", peak_bytes},
            {"loss", loss}};
  }

  Json spans(PipelineTraining& training) {
    comm_.barrier();
    training.step(batch_);
    auto actions = Json::array();
    for (const auto& span : training.report().actions) actions.push_back({span.start, span.end});
    return {{"begin_ns", training.report().begin_ns}, {"actions", actions}};
  }

  const std::string folder_;
  const PipelineBench bench_;
  Communicator comm_;
  PipelineBatch batch_;
  std::vector<std::unique_ptr<PipelineTraining>> trainings_;
};

}  // namespace

int run_bench_pipeline_rank(const PipelineRankOptions& options, const Invocation&) {
  const std::string request = options.folder + "/request.json";
  std::ifstream stream(request);
  if (!stream) throw UsageError(fmt::format("{}: cannot be read", request));
  AskedRank pipes(options.folder, "lockstep", identify().rank);
  PipelineRank rank(options, Json::parse(stream).get<PipelineBench>());
  while (const auto question = pipes.next()) pipes.answer(rank.answer(*question));
  return 0;
}

}  // namespace lockstep::cli
