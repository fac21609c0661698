#pragma once

#include <string>
#include <vector>

#include "cli/bench_request.h"
#include "lockstep/plan/fit.h"

namespace lockstep::cli {

/// The plan that a row runs: its own, or the communicator's choice for its size; `native` and `pingpong` have
/// none, and are their own names.
std::string plan_of(const CollectiveBench& bench, const BenchRow& row);

/// What shares parameters: all plans of messages on an engine. Each one-sided plan moves bytes in a way of
/// its own, through an inbox or in place, and so does an engine's native all-reduce.
std::string form_of(const CollectiveBench& bench, const BenchRow& row, const std::string& plan);

/// Counted from the plan. An engine does not tell what its native all-reduce sends: one message of all bytes.
plan::CostTerms terms_of(const CollectiveBench& bench, const BenchRow& row, const std::string& plan);

/// A row and its median as the fit takes it.
plan::Measurement measurement_of(const CollectiveBench& bench, const BenchRow& row, double time_us);

/// The model's time for a row, in microseconds; nothing if the model has no such form.
std::optional<double> predicted_us(const plan::Model& model, const CollectiveBench& bench,
                                   const BenchRow& row);

/// A model, and the world that it was measured on.
struct SavedModel {
  plan::Model model;
  int64_t world = 0;
};

/// Whole or not at all. Throws UsageError naming the file.
void save_model(const std::string& file, const SavedModel& saved);
SavedModel load_model(const std::string& file);

}  // namespace lockstep::cli
