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
  bool inexact = false;
  bool trace = false;
  bool tensorboard = false;
};

/// The flags of a rank that `lockstep train` starts, in a run's folder that is prepared.
struct TrainRankFlags {
  std::string run_dir;
  std::string settings;  ///< Of the run, as run.json has them: rank 0 writes them once the run is accepted.
  bool resume = false;
  bool inexact = false;
  bool tensorboard = false;
};

/// The engine that the user asked for, by flag or variable, or that a run which resumes has; "" for none.
/// Notes it as given.
std::string chosen_engine(train::RunRequest& request, const train::Variables& environment);

/// Prepares the run's folder, starts its ranks and watches them; the exit code.
int launch_training(const TrainFlags& flags);

/// What a rank ends with when all is trained and saved, and standard output did not take all of it: EX_IOERR.
constexpr int kExitLostOutput = 74;
constexpr const char* kLostOutput =
    "standard output: not all of it could be written; hint: the run is whole, its folder has all numbers";
/// The variable that tells a rank which descriptor its user reads; ranks' own output goes to logs.
constexpr const char* kOutVariable = "LOCKSTEP_TRAIN_OUT";

}  // namespace lockstep::cli
