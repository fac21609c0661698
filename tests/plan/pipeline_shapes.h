#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/plan/pipeline.h"

namespace lockstep::plan {

/// Every shape that a schedule allows, to `most_ranks` ranks, `most_microbatches` micro-batches and 4 chunks.
inline std::vector<PipelineShape> shapes_of(const Schedule& schedule, int most_ranks, int most_microbatches) {
  std::vector<PipelineShape> shapes;
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    for (int microbatches = 1; microbatches <= most_microbatches; ++microbatches) {
      for (int chunks = 1; chunks <= 4; ++chunks) {
        const PipelineShape shape{.ranks = ranks, .microbatches = microbatches, .chunks = chunks};
        if (why_not(schedule, shape).empty()) shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

inline std::string shape_text(const PipelineShape& shape) {
  return std::to_string(shape.ranks) + " ranks, " + std::to_string(shape.microbatches) + " micro-batches, " +
         std::to_string(shape.chunks) + " chunks";
}

inline std::string test_name(const Schedule& schedule) {
  std::string name(schedule.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace lockstep::plan
