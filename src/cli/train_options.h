#pragma once

#include <string>

#include "train/run/run_folder.h"

namespace lockstep::cli {

/// The flags of `lockstep train`.
struct TrainFlags {
  train::RunRequest request;
  std::string nproc_per_node;  ///< "": as many as fit, or as the run that goes on had.
  std::string max_restarts = "0";
  std::string grace = "30";
  std::string engine;
  bool inexact = false;
  bool trace = false;
  bool tensorboard = false;
};

/// The flags of a rank that `lockstep train` starts, in a run's folder that is prepared.
struct TrainRankFlags {
  std::string run_dir;
  bool resume = false;
  bool inexact = false;
  bool tensorboard = false;
};

/// Prepares the run's folder, starts its ranks and watches them; the exit code.
int launch_training(const TrainFlags& flags);

/// The variable that tells a rank which descriptor its user reads; ranks' own output goes to logs.
constexpr const char* kOutVariable = "LOCKSTEP_TRAIN_OUT";

}  // namespace lockstep::cli
