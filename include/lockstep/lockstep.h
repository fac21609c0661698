#pragma once

/// All of lockstep::lockstep: the core and what stands on LibTorch. Does not include <torch/torch.h>.

#include "lockstep/comms/data_parallel_comms.h"
#include "lockstep/comms/shared_allocator.h"
#include "lockstep/comms/tensors.h"
#include "lockstep/core.h"
#include "lockstep/parallel/ddp/bucketing.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/ddp/hooks_demo.h"
#include "lockstep/parallel/ddp/performance.h"
#include "lockstep/parallel/ddp/schedule.h"
#include "lockstep/parallel/ddp/sync_batch_norm.h"
#include "lockstep/train/data/distributed_sampler.h"
#include "lockstep/train/data/prefetch_loader.h"
#include "lockstep/train/models/full_mlp.h"
#include "lockstep/train/optim/clip_grad_norm.h"
#include "lockstep/train/optim/fused_adam.h"
#include "lockstep/train/optim/fused_sgd.h"
#include "lockstep/train/optim/repeated_parameters.h"
