// Every rank sends all to every other one, and adds: this is the O(P^2) one.
#include <cstdint>
#include <span>
#include <vector>

#include "lab/world.h"

namespace my_work {

void naive_all_reduce(lab::Rank& rank, std::span<float> data) {
  const std::vector<float> own(data.begin(), data.end());
  std::vector<lab::Work> sending;
  for (int to = 0; to < rank.world_size(); ++to) {
    if (to != rank.rank()) sending.push_back(rank.isend(own, to));
  }
  std::vector<float> arrived(data.size());
  for (int from = 0; from < rank.world_size(); ++from) {
    if (from == rank.rank()) continue;
    rank.recv(arrived, from);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] += arrived[i];
  }
  for (auto& work : sending) work.wait();
}

void all_reduce_mean(lab::Rank& rank, std::span<float> data) {
  naive_all_reduce(rank, data);
  for (float& x : data) x /= static_cast<float>(rank.world_size());
}

double naive_all_reduce_us(int world, std::int64_t bytes, double alpha_us, double beta_us_per_byte) {
  // Everything passes the port of rank 0: world - 1 messages in, then world - 1 out.
  return 2 * (world - 1) * (alpha_us + static_cast<double>(bytes) * beta_us_per_byte);
}

}  // namespace my_work
