#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_collectives.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/sample.h"
#include "cli/size.h"
#include "comms/combine.h"
#include "lockstep/comms/init.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

/// A rank's buffers of one size on one engine.
struct Buffers {
  std::shared_ptr<void> memory;
  float* input = nullptr;
  float* output = nullptr;  ///< For what does not work in place; world times as large.
  int64_t count = 0;        ///< Of the input.
};

/// One collective: what to call, what is right, how much it moves.
struct Kind {
  std::function<void(Communicator&, const Buffers&, const CallOptions&)> call;
  /// Fills the input; element i of rank r.
  std::function<float(int rank, int64_t element)> value;
  /// What `result` must hold on this rank.
  std::function<float(int rank, int world, int64_t count, int64_t element)> expected;
  bool in_place = true;
  int64_t result_per_input = 1;  ///< Elements of the result, times world if < 0.
  double bus_factor = 1;
};

float value_of(int rank, int64_t element) {
  return static_cast<float>((rank + 1) * 256 + element % 251);
}

float sum_at(int world, int64_t element) {
  float sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += value_of(rank, element);
  return sum;
}

Buffer view(float* data, int64_t count) {
  return {data, count, DataType::kFloat32};
}

Kind kind_of(const std::string& collective, int world) {
  const double share = static_cast<double>(world - 1) / world;
  if (collective == "allreduce") {
    return {.call = [](Communicator& comm, const Buffers& b,
                       const CallOptions& o) { comm.all_reduce(view(b.input, b.count), ReduceOp::kSum, o); },
            .value = value_of,
            .expected = [](int, int w, int64_t, int64_t i) { return sum_at(w, i); },
            .bus_factor = 2 * share};
  }
  if (collective == "broadcast") {
    return {.call = [](Communicator& comm, const Buffers& b,
                       const CallOptions& o) { comm.broadcast(view(b.input, b.count), 0, o); },
            .value = value_of,
            .expected = [](int, int, int64_t, int64_t i) { return value_of(0, i); }};
  }
  if (collective == "allgather") {
    return {
        .call =
            [world](Communicator& comm, const Buffers& b, const CallOptions& o) {
              comm.all_gather(view(b.input, b.count), view(b.output, b.count * world), o);
            },
        .value = value_of,
        .expected = [](int, int, int64_t n, int64_t i) { return value_of(static_cast<int>(i / n), i % n); },
        .in_place = false,
        .result_per_input = -1,
        .bus_factor = world - 1.0};
  }
  if (collective == "reducescatter") {
    return {.call =
                [world](Communicator& comm, const Buffers& b, const CallOptions& o) {
                  comm.reduce_scatter(
                      view(b.input, b.count),
                      view(b.output, b.count / world + (comm.rank() < b.count % world ? 1 : 0)),
                      ReduceOp::kSum, o);
                },
            .value = value_of,
            .expected = [](int r, int w, int64_t n,
                           int64_t i) { return sum_at(w, n / w * r + std::min<int64_t>(r, n % w) + i); },
            .in_place = false,
            .result_per_input = 0,
            .bus_factor = share};
  }
  if (collective == "alltoall") {
    return {.call =
                [](Communicator& comm, const Buffers& b, const CallOptions& o) {
                  comm.all_to_all(view(b.input, b.count), view(b.output, b.count), o);
                },
            .value = value_of,
            .expected =
                [](int r, int w, int64_t n, int64_t i) {
                  const int64_t part = n / w;
                  return value_of(static_cast<int>(i / part), part * r + i % part);
                },
            .in_place = false,
            .bus_factor = share};
  }
  if (collective == "pingpong") {
    return {.call =
                [](Communicator& comm, const Buffers& b, const CallOptions& o) {
                  if (comm.rank() == 0) {
                    comm.send(view(b.input, b.count), 1, 0, o);
                    comm.recv(view(b.input, b.count), 1, 0, o);
                  } else if (comm.rank() == 1) {
                    comm.recv(view(b.input, b.count), 0, 0, o);
                    comm.send(view(b.input, b.count), 0, 0, o);
                  }
                },
            .value = [](int, int64_t i) { return value_of(0, i); },
            .expected = [](int, int, int64_t, int64_t i) { return value_of(0, i); },
            .bus_factor = 2};
  }
  throw UsageError(fmt::format("lockstep bench: '{}': no such benchmark", collective));
}

/// One row of the table.
struct Row {
  Communicator comm;
  std::string algorithm;
  Buffers buffers;
  int64_t bytes = 0;
  int64_t wrong = 0;
  int calls = 3;  ///< In one measurement.
  Sample time_us = {};
  Sample floor_us = {};
};

Buffers make_buffers(Communicator& comm, const Kind& kind, int64_t bytes, bool staged) {
  Buffers buffers;
  const int world = comm.world_size();
  buffers.count = std::max<int64_t>(bytes / static_cast<int64_t>(sizeof(float)), 1);
  if (kind.in_place == false && kind.result_per_input == 1)
    buffers.count = (buffers.count + world - 1) / world * world;
  const int64_t results = kind.in_place ? 0 : buffers.count * (kind.result_per_input < 0 ? world : 1);
  const auto all = static_cast<size_t>(buffers.count + results) * sizeof(float);
  buffers.memory = staged ? std::shared_ptr<void>(std::malloc(all), std::free) : comm.allocate(all);
  buffers.input = static_cast<float*>(buffers.memory.get());
  buffers.output = buffers.input + buffers.count;
  return buffers;
}

/// Fills, calls once, and counts what is wrong, over all ranks.
void check(Row& row, const Kind& kind) {
  const int rank = row.comm.rank();
  const int world = row.comm.world_size();
  const Buffers& b = row.buffers;
  for (int64_t i = 0; i < b.count; ++i) b.input[i] = kind.value(rank, i);
  kind.call(row.comm, b, {.algorithm = row.algorithm});
  const float* const result = kind.in_place ? b.input : b.output;
  int64_t results = b.count * (kind.result_per_input < 0 ? world : 1);
  if (kind.result_per_input == 0) results = b.count / world + (rank < b.count % world ? 1 : 0);
  std::vector<int64_t> wrong = {0};
  for (int64_t i = 0; i < results; ++i)
    wrong[0] += result[i] != kind.expected(rank, world, b.count, i) ? 1 : 0;
  row.comm.all_reduce(wrong);
  row.wrong = wrong[0];
}

/// Microseconds of a call. The owner of large data has just written it, as backward writes gradients; small
/// data is called for in a row, since it stays in the cache anyhow and reading the clock would count.
double measure(Row& row, const Kind& kind) {
  const Buffers& b = row.buffers;
  const CallOptions options = {.algorithm = row.algorithm};
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  double spent = 0;
  if (row.bytes <= 4096) {
    std::fill_n(b.input, b.count, 0.0F);
    row.comm.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < row.calls; ++i) kind.call(row.comm, b, options);
    return since(begin) / row.calls;
  }
  for (int i = 0; i < row.calls; ++i) {
    std::fill_n(b.input, b.count, 1.0F);
    row.comm.barrier();
    const auto begin = Clock::now();
    kind.call(row.comm, b, options);
    spent += since(begin);
  }
  return spent / row.calls;
}

/// So many calls that a measurement takes about 20 ms; rank 0 decides.
void set_calls(Row& row, const Kind& kind) {
  measure(row, kind);
  std::vector<int32_t> calls = {static_cast<int32_t>(std::clamp(20'000 / measure(row, kind), 3.0, 20'000.0))};
  row.comm.broadcast(calls);
  row.calls = calls[0];
}

/// The loads, additions and stores of a push all-reduce, on memory of this rank alone.
void measure_floor(Row& row, std::vector<float>& memory) {
  const int world = row.comm.world_size();
  const int64_t part = (row.buffers.count + world - 1) / world;
  memory.resize(std::max(memory.size(), static_cast<size_t>(part * world)));
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (int k = 0; k < world; ++k) {
    sources.push_back(memory.data() + part * k);
    destinations.push_back(memory.data() + part * k);
  }
  double spent = 0;
  for (int i = 0; i < row.calls; ++i) {
    std::fill_n(memory.data(), part * world, 1.0F);
    row.comm.barrier();
    const auto begin = Clock::now();
    comms::combine(DataType::kFloat32, ReduceOp::kSum, sources, destinations, part);
    spent += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
  row.floor_us.add(spent / row.calls);
}

Json result_of(const CollectiveBench& bench, const Kind& kind, const std::vector<Row>& rows,
               const std::vector<std::vector<double>>& times) {
  Json document = {{"rows", Json::array()}, {"ratios", Json::array()}};
  for (const auto& row : rows) {
    const double seconds = row.time_us.median() * 1e-6;
    const double bandwidth = static_cast<double>(row.bytes) / seconds * 1e-9;
    document["rows"].push_back({{"collective", bench.collective},
                                {"engine", row.comm.engine()},
                                {"algorithm", row.algorithm.empty() ? "auto" : row.algorithm},
                                {"world", row.comm.world_size()},
                                {"bytes", row.bytes},
                                {"time_us", row.time_us.median()},
                                {"low_us", row.time_us.low()},
                                {"high_us", row.time_us.high()},
                                {"algbw_gbps", bandwidth},
                                {"busbw_gbps", bandwidth * kind.bus_factor},
                                {"wrong", row.wrong},
                                {"floor_us", row.floor_us.empty() ? Json() : Json(row.floor_us.median())},
                                {"predicted_us", nullptr}});
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t ours = 0; ours < rows.size(); ++ours) {
      const bool pair = rows[ours].comm.engine() == "shm" && rows[i].comm.engine() != "shm" &&
                        rows[ours].bytes == rows[i].bytes;
      if (!pair) continue;
      Sample ratio;
      for (size_t round = 0; round < times[i].size(); ++round)
        ratio.add(times[i][round] / times[ours][round]);
      document["ratios"].push_back({{"bytes", rows[i].bytes},
                                    {"engine", rows[i].comm.engine()},
                                    {"median", ratio.median()},
                                    {"low", ratio.low()},
                                    {"high", ratio.high()}});
    }
  }
  return document;
}

int bench_rank(const CollectiveBench& bench, const std::string& file) {
  std::vector<Communicator> engines;
  for (const auto& engine : bench.engines) engines.push_back(init_distributed({.engine = engine}));
  const Kind kind = kind_of(bench.collective, engines.front().world_size());
  std::vector<Row> rows;
  for (const int64_t bytes : bench.sizes) {
    for (auto& comm : engines) {
      const bool peer = comm.engine() != "shm" && bench.collective == "allreduce";
      auto algorithms = bench.algorithms;
      if (algorithms.empty()) algorithms = {peer ? "native" : ""};
      for (const auto& algorithm : algorithms) {
        rows.push_back({.comm = comm,
                        .algorithm = algorithm,
                        .buffers = make_buffers(comm, kind, bytes, bench.staged),
                        .bytes = bytes});
        check(rows.back(), kind);
      }
    }
  }
  std::vector<std::vector<double>> times(rows.size());
  std::vector<float> memory;
  for (auto& row : rows) set_calls(row, kind);
  for (int64_t round = 0; round < bench.rounds; ++round) {
    for (size_t i = 0; i < rows.size(); ++i) {
      times[i].push_back(measure(rows[i], kind));
      rows[i].time_us.add(times[i].back());
      const bool has_floor =
          bench.collective == "allreduce" && rows[i].comm.engine() == "shm" && rows[i].bytes >= 65536;
      if (has_floor) measure_floor(rows[i], memory);
    }
  }
  if (engines.front().rank() == 0) std::ofstream(file) << result_of(bench, kind, rows, times).dump() << "\n";
  return 0;
}

}  // namespace

Action define_bench_collective_rank(Flags flags) {
  struct Words {
    CollectiveBench bench;
    std::string engines, algorithms, sizes, file;
  };
  const auto words = std::make_shared<Words>();
  flags.word("collective", words->bench.collective, "What to measure", true);
  flags.text("--engines", words->engines, "Engines", "LIST");
  flags.text("--algorithms", words->algorithms, "Algorithms", "LIST");
  flags.text("--sizes", words->sizes, "Bytes", "LIST");
  flags.text("--result", words->file, "Where rank 0 writes the result", "FILE");
  flags.number("--rounds", words->bench.rounds, 1, 1000, "Rounds");
  flags.toggle("--staged", words->bench.staged, "Buffers outside of shared memory");
  return [words](const Invocation&) {
    words->bench.engines = words_of(words->engines);
    words->bench.algorithms = words_of(words->algorithms);
    for (const auto& size : words_of(words->sizes))
      words->bench.sizes.push_back(parse_bytes("--sizes", size));
    return bench_rank(words->bench, words->file);
  };
}

}  // namespace lockstep::cli
