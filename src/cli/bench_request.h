#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

/// One measurement to make.
struct BenchRow {
  std::string engine;
  std::string algorithm;  ///< A plan's name, or native (the engine library's own); empty: the communicator's
                          ///< own choice.
  int64_t bytes = 0;      ///< Of each rank's buffer.
};

/// What the ranks of `bench allreduce` and the like shall measure; they get it as a file.
struct CollectiveBench {
  std::string collective;
  int64_t world = 2;
  int64_t rounds = 7;
  bool staged = false;  ///< Buffers outside of shared memory.
  std::vector<BenchRow> rows = {};
};

/// What they measured of one row.
struct RowTimes {
  int64_t wrong = 0;                  ///< Elements, over all ranks, in the call before the first that counts.
  std::vector<double> times_us = {};  ///< By round.
  std::vector<double> floors_us = {};  ///< By round; empty where no floor is measured.
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BenchRow, engine, algorithm, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CollectiveBench, collective, world, rounds, staged, rows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RowTimes, wrong, times_us, floors_us)

/// Starts the ranks, waits for them, and returns what they measured, row by row: all rows in each round, so
/// that whatever else the machine does meets them alike.
std::vector<RowTimes> run_bench_ranks(const CollectiveBench& bench);

}  // namespace lockstep::cli
