// Messages between two ranks: latency of small ones, bandwidth of large ones.
//
//   lockstep run --nproc-per-node 2 build/release/bin/example_ping_pong
#include <lockstep/core.h>

#include <chrono>
#include <cstdio>

int main() {
  auto comm = lockstep::init_distributed();
  if (comm.world_size() != 2) {
    std::fprintf(stderr, "ping_pong needs two ranks, not %d\n", comm.world_size());
    return 2;
  }
  for (size_t bytes = 1; bytes <= size_t{16} << 20; bytes *= 16) {
    std::vector<uint8_t> ball(bytes, static_cast<uint8_t>(comm.rank() == 0 ? 7 : 0));
    const int rounds = bytes < 65536 ? 2000 : 20;
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < rounds; ++round) {
      if (comm.rank() == 0) comm.send(ball, 1);
      comm.recv(ball, 1 - comm.rank());
      if (comm.rank() == 1) comm.send(ball, 0);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (ball.back() != 7) {
      std::fprintf(stderr, "rank %d: the ball came back wrong\n", comm.rank());
      return 1;
    }
    const double one_way = seconds / rounds / 2;
    if (comm.rank() == 0) {
      std::printf("%10zu bytes %10.2f us one way %9.3f GB/s\n", bytes, one_way * 1e6,
                  static_cast<double>(bytes) / one_way * 1e-9);
    }
  }
}
