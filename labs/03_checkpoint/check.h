#pragma once

#include <optional>
#include <string>

#include "lab/checker.h"
#include "lab/disk.h"
#include "lab/tiny_trainer.h"

namespace lab::checkpoint {

/// What the lesson asks for.
struct Seam {
  Bytes (*to_bytes)(const TrainState& state);
  TrainState (*from_bytes)(const Bytes& bytes);
  void (*save)(Disk& disk, const std::string& name, const Bytes& state);
  std::optional<Bytes> (*load)(const Disk& disk, const std::string& name);
};

void check(const Seam& seam, Checker& checker);

}  // namespace lab::checkpoint
