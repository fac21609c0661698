#include "cli/pipeline_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/flags.h"
#include "cli/nearest.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"

namespace lockstep::cli {

void PipelineOptions::add_to(Flags flags) {
  flags.number("--stages", stages, 1, 32768, "Ranks of the pipeline");
  flags.number("--microbatches", microbatches, 1, 1'000'000, "Micro-batches of a training step");
  flags.number("--chunks", chunks, 0, 1'000'000,
               "Parts of the model on each rank; 0: 2 for interleaved, 1 for the others");
}

plan::PipelineShape PipelineOptions::shape_of(const plan::Schedule& schedule,
                                              const std::vector<plan::Schedule>& chosen) const {
  const auto interleaves = [](const plan::Schedule& one) { return one.interleaves; };
  if (chunks > 1 && std::none_of(chosen.begin(), chosen.end(), interleaves)) {
    throw UsageError(fmt::format("--chunks {}: {} has one chunk on each rank; hint: interleaved has several",
                                 chunks, schedule.name));
  }
  const int64_t of_interleaved = chunks == 0 ? 2 : chunks;
  return {.ranks = static_cast<int>(stages),
          .microbatches = static_cast<int>(microbatches),
          .chunks = schedule.interleaves ? static_cast<int>(of_interleaved) : 1};
}

const plan::Schedule& schedule_named(const std::string& word, const std::vector<plan::Schedule>& offered) {
  try {
    return plan::find_schedule(word);
  } catch (const UsageError&) {
    std::vector<std::string> names;
    for (const auto& schedule : offered) names.emplace_back(schedule.name);
    const std::string problem =
        fmt::format("schedule '{}': unknown; hint: one of {}", word, fmt::join(names, ", "));
    throw UsageError(with_nearest(problem, word, names));
  }
}

std::vector<plan::Schedule> parse_schedules(const std::string& names,
                                            const std::vector<plan::Schedule>& offered) {
  if (names == "all") return offered;
  std::vector<plan::Schedule> found;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    found.push_back(schedule_named(names.substr(begin, end - begin), offered));
    begin = end + 1;
  }
  return found;
}

void refuse_as_collective(const std::string& verb, const std::string& collective) {
  if (plan::plain_name(collective) != "pipeline") return;
  throw UsageError(
      fmt::format("collective '{}': has flags of its own, after the word; hint: lockstep {} pipeline --help",
                  collective, verb));
}

}  // namespace lockstep::cli
