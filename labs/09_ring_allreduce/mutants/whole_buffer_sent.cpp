// Sends the whole buffer round the ring, as the heaviest "ring" of the older courses did.
#include <span>
#include <vector>

#include "lab/world.h"

namespace my_work {

void ring_all_reduce(lab::Rank& rank, std::span<float> data) {
  std::vector<float> passing(data.begin(), data.end()), arrived(data.size());
  for (int s = 0; s < rank.world_size() - 1; ++s) {
    auto sending = rank.isend(passing, rank.get_next_rank());
    rank.recv(arrived, rank.get_prev_rank());
    sending.wait();
    for (std::size_t i = 0; i < data.size(); ++i) data[i] += arrived[i];
    passing = arrived;
  }
}

}  // namespace my_work
