#pragma once

#include <fmt/format.h>

#include <array>

#include "parallel/pipeline_contract.h"
#include "parallel/pipeline_models.h"

namespace lockstep::test {

using Problems = std::vector<std::string>;

inline void require(Problems& problems, bool holds, const std::string& what) {
  if (!holds) problems.push_back(what);
}

struct Way {
  const char* schedule;
  int chunks;
};
constexpr std::array<Way, 4> kWays = {{{"naive", 1}, {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}}};

inline std::string describe(const Way& way, int microbatches) {
  return fmt::format("{}, {} micro-batches", way.schedule, microbatches);
}

inline void zero_grad(const std::vector<AnyModel>& chunks) {
  for (const auto& chunk : chunks) chunk->zero_grad();
}

}  // namespace lockstep::test
