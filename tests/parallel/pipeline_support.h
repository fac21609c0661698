#pragma once

#include "lockstep/train/models/sharded_mlp.h"
#include "parallel/ddp_support.h"
#include "parallel/pipeline_models.h"
