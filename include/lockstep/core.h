#pragma once

/// All of lockstep::core, the part that needs no LibTorch.

#include "lockstep/error.h"
#include "lockstep/launch/identity.h"
#include "lockstep/version.h"
