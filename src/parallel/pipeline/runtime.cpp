#include "parallel/pipeline/runtime.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/microbatches.h"
#include "lockstep/plan/pipeline_verify.h"
#include "parallel/ddp/agreement.h"
#include "parallel/default_generator.h"
#include "parallel/say_where.h"
#include "parallel/seed.h"

namespace lockstep::pipeline {

namespace {

/// A communicator for these ranks alone, which all ask for the same pipeline: else an error on each of them.
Communicator communicator_of(const Communicator& comm, const PipelineOptions& options, size_t chunks) {
  Communicator own = Communicator(comm).split(0).value();
  const std::string wanted = fmt::format("schedule {}, {} micro-batches, {} stages on a rank",
                                         options.schedule, options.microbatches, chunks);
  if (const auto difference = ddp::first_difference(own, {wanted}); !difference.empty()) {
    throw UsageError(fmt::format("pipeline: {}", difference));
  }
  return own;
}

/// A plan that can be run.
plan::PipelinePlan runnable(const PipelineOptions& options, int ranks, size_t chunks) {
  auto made = plan::make_pipeline_plan(
      options.schedule,
      {.ranks = ranks, .microbatches = options.microbatches, .chunks = static_cast<int>(chunks)});
  if (const auto verdict = plan::verify_pipeline(made); !verdict.ok) {
    throw Error(fmt::format("schedule {}: {}", options.schedule, verdict.problem));
  }
  if (plan::find_schedule(options.schedule).splits_backward) {
    throw UsageError(
        fmt::format("schedule {} splits backward in two, which cannot be run yet; hint: 1f1b, or interleaved",
                    made.schedule));
  }
  return made;
}

int64_t schedule_number(const std::string& name) {
  const auto& all = plan::schedules();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
  return found - all.begin();
}

int64_t hash_of(const at::Tensor& tensor) {
  uint64_t hash = static_cast<uint64_t>(tensor.scalar_type());
  for (const int64_t size : tensor.sizes()) {
    hash = parallel::derive_seed(hash, parallel::Stream::kBatches, static_cast<uint64_t>(size));
  }
  return static_cast<int64_t>(hash);
}

constexpr int64_t kNoTensor = -1, kNoDimension = -2;

int64_t samples_of(const at::Tensor& batch) {
  if (!batch.defined()) return kNoTensor;
  return batch.dim() > 0 ? batch.size(0) : kNoDimension;
}

/// What a rank is about to run, in numbers.
enum Told : size_t { kSchedule, kMicrobatches, kChunks, kTrains, kSamples, kTargets, kForm, kTold };

std::string describe(const int64_t* told) {
  const auto& all = plan::schedules();
  const int64_t schedule = told[kSchedule];
  const bool is_known = schedule >= 0 && schedule < static_cast<int64_t>(all.size());
  return fmt::format("{} of {} with {} micro-batches and {} {}",
                     told[kTrains] != 0 ? "a step" : "an evaluation",
                     is_known ? std::string(all[static_cast<size_t>(schedule)].name)
                              : fmt::format("schedule number {}", schedule),
                     told[kMicrobatches], told[kChunks], told[kChunks] == 1 ? "chunk" : "chunks");
}

}  // namespace

Runtime::Runtime(const std::vector<AnyModel>& chunks, const Communicator& comm, Pipeline::Loss loss,
                 const PipelineOptions& options)
    : options_(options),
      comm_(communicator_of(comm, options, chunks.size())),
      loss_(std::move(loss)),
      chunks_(tell_apart(chunks, comm_)),
      plan_(runnable(options, comm_.world_size(), chunks.size())),
      forward_plan_(plan::forward_only(plan_)),
      tied_(comm_, options.tied),
      steps_(options.first_step) {}

Runtime::Agreed Runtime::agree(bool trains, const at::Tensor& input, const at::Tensor& target) {
  std::vector<int64_t> said = {schedule_number(plan_.schedule),
                               options_.microbatches,
                               static_cast<int64_t>(chunks_.size()),
                               trains ? 1 : 0,
                               is_first() ? samples_of(input) : kNoTensor,
                               is_last() ? samples_of(target) : kNoTensor,
                               is_first() && input.defined() ? hash_of(input) : 0};
  std::vector<int64_t> heard(kTold * static_cast<size_t>(comm_.world_size()));
  comm_.all_gather(said, heard);
  const int64_t* const first = heard.data();
  for (int rank = 1; rank < comm_.world_size(); ++rank) {
    const int64_t* const other = first + static_cast<size_t>(rank) * kTold;
    if (std::equal(first, first + kSamples, other)) continue;
    throw UsageError(fmt::format("pipeline: rank 0 runs {}, rank {} {}; hint: all ranks make the same calls",
                                 describe(first), rank, describe(other)));
  }
  if (first[kSamples] < 0) {
    throw UsageError(
        "pipeline: rank 0, which has the first stage, gave no input with samples in its first dimension");
  }
  const int64_t targets = heard[heard.size() - kTold + kTargets];
  if (targets == kNoDimension) {
    throw UsageError(fmt::format("pipeline: rank {}'s target is a single number; hint: one for each sample",
                                 comm_.world_size() - 1));
  }
  if (targets != kNoTensor && targets != first[kSamples]) {
    throw UsageError(fmt::format("pipeline: rank 0's input has {} samples, rank {}'s target {}",
                                 first[kSamples], comm_.world_size() - 1, targets));
  }
  return {.samples = first[kSamples], .key = {trains, first[kForm]}};
}

at::Tensor Runtime::run(bool trains, const at::Tensor& input, const at::Tensor& target, double scale) {
  int64_t& number = trains ? steps_ : evaluations_;
  const auto at = [&](const char* when) {
    return [this, trains, when, of = number + 1] {
      return fmt::format("pipeline {} {} on rank {}, {}", trains ? "step" : "evaluation", of, comm_.rank(),
                         when);
    };
  };
  const Agreed agreed =
      parallel::say_where(at("before its first action"), [&] { return agree(trains, input, target); });
  const auto sizes = microbatch_sizes(agreed.samples, options_.microbatches);
  StepInput work = {.plan = trains ? plan_ : forward_plan_,
                    .comm = comm_,
                    .chunks = chunks_,
                    .loss = loss_,
                    .number = number + 1,
                    .trains = trains,
                    .recomputes = trains && options_.recompute,
                    .scale = scale,
                    .seed = parallel::derive_seed(options_.seed, parallel::Stream::kDropout,
                                                  static_cast<uint64_t>(number))};
  if (is_first()) work.inputs = input.detach().split_with_sizes(sizes);
  if (is_last()) {
    work.targets = target.defined() ? target.split_with_sizes(sizes) : std::vector<at::Tensor>(sizes.size());
    for (const int64_t size : sizes) {
      const bool is_mean = options_.reduction == LossReduction::kMean;
      work.weights.push_back(is_mean ? static_cast<double>(size) / static_cast<double>(agreed.samples) : 1);
    }
  }
  const parallel::KeepDefaultGenerator keep;
  const bool learns = !forms_.contains(agreed.key);
  Forms& forms = forms_[agreed.key];
  if (trains) tied_.open_step();
  Step step(std::move(work), forms, learns);
  at::Tensor loss = step.run();
  if (trains)
    parallel::say_everywhere(comm_, at("in the sum of tied gradients"), [&] { tied_.close_step(); });
  ++number;
  if (trains) report_ = step.report();
  return loss;
}

}  // namespace lockstep::pipeline
