#pragma once

/// All of lockstep::core, the part that needs no LibTorch.

#include "lockstep/error.h"
#include "lockstep/launch/identity.h"
#include "lockstep/plan/all_reduce.h"
#include "lockstep/plan/collectives.h"
#include "lockstep/plan/cost.h"
#include "lockstep/plan/grid.h"
#include "lockstep/plan/json.h"
#include "lockstep/plan/plan.h"
#include "lockstep/plan/simulate.h"
#include "lockstep/plan/step.h"
#include "lockstep/plan/stored.h"
#include "lockstep/plan/text.h"
#include "lockstep/plan/verify.h"
#include "lockstep/trace/chrome.h"
#include "lockstep/trace/file.h"
#include "lockstep/trace/json.h"
#include "lockstep/trace/session.h"
#include "lockstep/trace/span.h"
#include "lockstep/trace/writer.h"
#include "lockstep/version.h"
