// All-reduce four ways, side by side: what each plan moves, and what it takes here.
//
//   lockstep run --nproc-per-node 4 build/release/bin/example_allreduce [FLOATS]
//
// Every rank brings its own number in every element; the sum must be the same everywhere, whichever way it
// came about.
#include <lockstep/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

using lockstep::Buffer;
using lockstep::Communicator;
using lockstep::ReduceOp;

/// Median of several calls, in microseconds; -1 if any element was wrong.
double time_of(Communicator& comm, std::string_view algorithm, const Buffer& data) {
  auto* const elements = static_cast<float*>(data.data);
  const int world = comm.world_size();
  const auto expected = static_cast<float>(world * (world + 1) / 2);
  std::vector<double> times;
  for (int round = 0; round < 7; ++round) {
    std::fill_n(elements, data.count, static_cast<float>(comm.rank() + 1));
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    comm.all_reduce(data, ReduceOp::kSum, {.algorithm = algorithm});
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    for (int64_t i = 0; i < data.count; ++i) {
      if (elements[i] != expected) return -1;
    }
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  auto comm = lockstep::init_distributed();
  const int64_t count = argc > 1 ? std::atoll(argv[1]) : 1 << 20;
  const auto memory = comm.allocate(static_cast<size_t>(count) * sizeof(float));
  const Buffer data(memory.get(), count, lockstep::DataType::kFloat32);
  if (comm.rank() == 0) {
    std::printf("%d ranks, %lld float32 (%.1f MiB)\n\n%-8s %14s %14s %8s %12s\n", comm.world_size(),
                static_cast<long long>(count), static_cast<double>(data.bytes()) / (1 << 20), "plan",
                "sent by a rank", "over one link", "rounds", "time us");
  }
  bool right = true;
  for (const std::string_view algorithm : {"naive", "ring", "tree", "push"}) {
    if (algorithm == "push" && comm.engine() != "shm") {
      if (comm.rank() == 0) std::printf("push     needs ranks that share memory\n");
      continue;
    }
    const auto plan = lockstep::plan::make_plan(lockstep::plan::Collective::kAllReduce, algorithm,
                                                {.world = comm.world_size()});
    const auto verdict = lockstep::plan::verify(plan, {.count = count, .element_bytes = sizeof(float)});
    const double time = time_of(comm, algorithm, data);
    right = right && verdict.ok && time >= 0;
    if (comm.rank() == 0) {
      std::printf(
          "%-8s %13.1f%% %13.1f%% %8d %12.1f%s\n", algorithm.data(),
          100.0 * static_cast<double>(verdict.traffic.bytes_per_rank) / static_cast<double>(data.bytes()),
          100.0 * static_cast<double>(verdict.traffic.bytes_per_link) / static_cast<double>(data.bytes()),
          verdict.traffic.rounds, time, time < 0 ? "  WRONG" : "");
    }
  }
  return right ? 0 : 1;
}
