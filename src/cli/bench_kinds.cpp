#include "cli/bench_kinds.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

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

}  // namespace

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

}  // namespace lockstep::cli
