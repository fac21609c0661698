#include "train/run/rank_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace lockstep::train {

RankLog::RankLog(const std::filesystem::path& file, int64_t last_step) : file_(file) {
  if (last_step > 0) file_.append(fmt::format("goes on behind step {}\n", last_step));
}

void RankLog::step(int64_t step, const std::optional<double>& own_loss, double mean,
                   const std::vector<size_t>& samples) {
  constexpr size_t kShown = 8;
  const auto first = std::span(samples).first(std::min(kShown, samples.size()));
  file_.append(fmt::format("step {} loss {} mean {:.6f} samples {}{}\n", step,
                           own_loss ? fmt::format("{:.6f}", *own_loss) : "-", mean, fmt::join(first, " "),
                           samples.size() > kShown ? " ..." : ""));
}

}  // namespace lockstep::train
