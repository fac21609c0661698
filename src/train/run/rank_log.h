#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "train/run/append_file.h"

namespace lockstep::train {

/// logs/rank_<k>/train.log: a line a step, of what this rank saw. Its own loss differs from the others',
/// since its samples do.
class RankLog {
 public:
  /// Goes on behind what is there; says so if `last_step` is not 0.
  RankLog(const std::filesystem::path& file, int64_t last_step);

  /// `own_loss`: of this rank's samples, if it sees a loss; `mean`: over ranks; `samples`: those it drew.
  void step(int64_t step, const std::optional<double>& own_loss, double mean,
            const std::vector<size_t>& samples);

 private:
  AppendFile file_;
};

}  // namespace lockstep::train
