#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/comms/pipeline_comms.h"
#include "lockstep/parallel/pipeline/microbatches.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep {

/// Mean squared error: what the steps below take unless they are told.
at::Tensor mean_squared_error(const at::Tensor& output, const at::Tensor& target);

/// One training step of a model whose stage r is on rank r, by each of the course's schedules. Gradients are
/// added to the stage's parameters. Returns the loss on the last rank, an undefined tensor elsewhere. All
/// ranks call it; the first needs the batch, the last the targets.
///
/// Each call makes a Pipeline, runs it once, and so finds out all shapes anew: a program that trains keeps
/// one. Dropout's seed is drawn from torch's default generator.
at::Tensor naive_pipeline_step(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                               const at::Tensor& targets, int microbatches = 1,
                               const Pipeline::Loss& loss = mean_squared_error);
at::Tensor gpipe_pipeline_step(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                               const at::Tensor& targets, int microbatches,
                               const Pipeline::Loss& loss = mean_squared_error);
at::Tensor onef_oneb_pipeline_step(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                                   const at::Tensor& targets, int microbatches,
                                   const Pipeline::Loss& loss = mean_squared_error);

/// The naive step once more, written out by hand: the oracle of the tests, and the first to read. The whole
/// batch goes forward through all stages and back. `shape` is that of the activations between stages.
at::Tensor naive_pipeline_step_by_hand(const AnyModel& stage, PipelineComms& comms, const at::Tensor& batch,
                                       const at::Tensor& targets, at::IntArrayRef shape,
                                       const Pipeline::Loss& loss = mean_squared_error);

}  // namespace lockstep
