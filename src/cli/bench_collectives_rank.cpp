#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>

#include "cli/bench_kinds.h"
#include "cli/bench_native.h"
#include "cli/bench_request.h"
#include "cli/define.h"
#include "cli/flags.h"
#include "cli/sample.h"
#include "comms/combine.h"
#include "lockstep/comms/init.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Clock = std::chrono::steady_clock;

/// An engine, and memory for its largest row, which all of its rows use by turns.
struct EngineMemory {
  Communicator comm;
  std::shared_ptr<void> memory = nullptr;
  NativeSum native_sum = nullptr;  ///< If a row asks for it.
};

/// A row under way.
struct BufferRow {
  Communicator comm;
  BenchRow request;
  Buffers buffers;
  NativeSum native_sum;  ///< Instead of the communicator's.
  int calls = 3;         ///< In one measurement.
  RowTimes measured = {};
};

int64_t count_of(const Kind& kind, int64_t bytes, int world) {
  const int64_t count = std::max<int64_t>(bytes / static_cast<int64_t>(sizeof(float)), 1);
  const bool divides = !kind.in_place && kind.result_per_input == 1;
  return divides ? (count + world - 1) / world * world : count;
}

/// Elements of input and output together.
int64_t all_elements(const Kind& kind, int64_t count, int world) {
  return count + (kind.in_place ? 0 : count * (kind.result_per_input < 0 ? world : 1));
}

std::map<std::string, EngineMemory> join(const CollectiveBench& bench, const Kind& kind) {
  std::map<std::string, int64_t> most;
  for (const auto& row : bench.rows) {
    const int64_t count = count_of(kind, row.bytes, static_cast<int>(bench.world));
    most[row.engine] = std::max(most[row.engine], all_elements(kind, count, static_cast<int>(bench.world)));
  }
  std::map<std::string, EngineMemory> engines;
  for (const auto& [engine, elements] : most) {
    EngineMemory joined = {.comm = init_distributed({.engine = engine})};
    const auto bytes = static_cast<size_t>(elements) * sizeof(float);
    joined.memory =
        bench.staged ? std::shared_ptr<void>(std::malloc(bytes), std::free) : joined.comm.allocate(bytes);
    const bool has_native = std::any_of(bench.rows.begin(), bench.rows.end(), [&](const BenchRow& row) {
      return row.engine == joined.comm.engine() && row.algorithm == "native";
    });
    if (has_native) joined.native_sum = make_native_sum(joined.comm);
    engines.emplace(engine, std::move(joined));
  }
  return engines;
}

void make_call(BufferRow& row, const Kind& kind) {
  if (row.native_sum) return row.native_sum(row.buffers.input, row.buffers.count);
  kind.call(row.comm, row.buffers, {.algorithm = row.request.algorithm});
}

/// Fills, calls once, and counts what is wrong, over all ranks.
void check(BufferRow& row, const Kind& kind) {
  const int rank = row.comm.rank();
  const int world = row.comm.world_size();
  const Buffers& b = row.buffers;
  for (int64_t i = 0; i < b.count; ++i) b.input[i] = kind.value(rank, i);
  make_call(row, kind);
  const float* const result = kind.in_place ? b.input : b.output;
  int64_t results = b.count * (kind.result_per_input < 0 ? world : 1);
  if (kind.result_per_input == 0) results = b.count / world + (rank < b.count % world ? 1 : 0);
  std::vector<int64_t> wrong = {0};
  for (int64_t i = 0; i < results; ++i)
    wrong[0] += result[i] != kind.expected(rank, world, b.count, i) ? 1 : 0;
  row.comm.all_reduce(wrong);
  row.measured.wrong = wrong[0];
}

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Microseconds of a call: the median of many, so that one during which this rank was put off its core does
/// not count. The owner of large data has just written it, as backward writes gradients; small data is called
/// for several times in a row, since it stays in the cache anyhow and reading the clock would count.
double measure(BufferRow& row, const Kind& kind) {
  const Buffers& b = row.buffers;
  const bool is_small = row.request.bytes <= 4096;
  const int in_a_row = is_small ? std::min(row.calls, 16) : 1;
  std::fill_n(b.input, b.count, 0.0F);
  row.comm.barrier();
  Sample times_us;
  for (int call = 0; call < row.calls; call += in_a_row) {
    if (!is_small) {
      std::fill_n(b.input, b.count, 1.0F);
      row.comm.barrier();
    }
    const auto begin = Clock::now();
    for (int i = 0; i < in_a_row; ++i) make_call(row, kind);
    times_us.add(microseconds_since(begin) / in_a_row);
  }
  return times_us.median();
}

/// So many calls that a measurement takes about 20 ms; rank 0 decides.
void set_calls(BufferRow& row, const Kind& kind) {
  measure(row, kind);
  std::vector<int32_t> calls = {static_cast<int32_t>(std::clamp(20'000 / measure(row, kind), 3.0, 20'000.0))};
  row.comm.broadcast(calls);
  row.calls = calls[0];
}

/// The loads, additions and stores of a push all-reduce, on memory of this rank alone.
double measure_floor(BufferRow& row, std::vector<float>& memory) {
  const int world = row.comm.world_size();
  const int64_t part = (row.buffers.count + world - 1) / world;
  memory.resize(std::max(memory.size(), static_cast<size_t>(part * world)));
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (int k = 0; k < world; ++k) {
    sources.push_back(memory.data() + part * k);
    destinations.push_back(memory.data() + part * k);
  }
  Sample times_us;
  for (int i = 0; i < row.calls; ++i) {
    std::fill_n(memory.data(), part * world, 1.0F);
    row.comm.barrier();
    const auto begin = Clock::now();
    comms::combine(DataType::kFloat32, ReduceOp::kSum, sources, destinations, part);
    times_us.add(microseconds_since(begin));
  }
  return times_us.median();
}

/// Whether the floor, which is that of push, says something of this row.
bool has_floor(const CollectiveBench& bench, const BenchRow& row) {
  return bench.collective == "allreduce" && row.engine == "shm" && row.bytes >= 65536 &&
         (row.algorithm.empty() || row.algorithm == "push");
}

int bench_rank(const CollectiveBench& bench, const std::string& file) {
  const Kind kind = kind_of(bench.collective, static_cast<int>(bench.world));
  const auto engines = join(bench, kind);
  std::vector<BufferRow> rows;
  for (const auto& request : bench.rows) {
    const auto& [comm, memory, native_sum] = engines.at(request.engine);
    auto* const input = static_cast<float*>(memory.get());
    const int64_t count = count_of(kind, request.bytes, comm.world_size());
    rows.push_back({.comm = comm,
                    .request = request,
                    .buffers = {.input = input, .output = input + count, .count = count},
                    .native_sum = request.algorithm == "native" ? native_sum : nullptr});
    check(rows.back(), kind);
  }
  std::vector<float> memory;
  for (auto& row : rows) set_calls(row, kind);
  for (int64_t round = 0; round < bench.rounds; ++round) {
    for (auto& row : rows) {
      row.measured.times_us.push_back(measure(row, kind));
      if (has_floor(bench, row.request)) row.measured.floors_us.push_back(measure_floor(row, memory));
    }
  }
  if (rows.front().comm.rank() != 0) return 0;
  auto document = nlohmann::json::array();
  for (const auto& row : rows) document.push_back(row.measured);
  std::ofstream(file) << document << "\n";
  return 0;
}

}  // namespace

Action define_bench_collective_rank(Flags flags) {
  struct Words {
    std::string request, result;
  };
  const auto words = std::make_shared<Words>();
  flags.word("request", words->request, "What to measure", true);
  flags.word("result", words->result, "Where rank 0 writes what it measured", true);
  return [words](const Invocation&) {
    std::ifstream stream(words->request);
    if (!stream) throw UsageError(fmt::format("request {}: cannot be read", words->request));
    return bench_rank(nlohmann::json::parse(stream).get<CollectiveBench>(), words->result);
  };
}

}  // namespace lockstep::cli
