// Both players serve first: if a send waits for its receive, nobody ever receives.
#include <charconv>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "06_process_group/group.h"
#include "lab/world.h"

namespace my_work {

inline int number(const lab::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end()) throw std::invalid_argument(name + " is not set");
  const std::string& text = found->second;
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw std::invalid_argument(name + "=" + text + " is not a whole number");
  return value;
}

lab::Place place_of(const lab::Environment& environment) {
  const int nodes = number(environment, "NNODES"), node = number(environment, "NODE_RANK");
  const int per_node = number(environment, "NPROC_PER_NODE"), local = number(environment, "LOCAL_RANK");
  if (node >= nodes) throw std::invalid_argument("NODE_RANK must be below NNODES");
  if (local >= per_node) throw std::invalid_argument("LOCAL_RANK must be below NPROC_PER_NODE");
  const lab::Place place{node * per_node + local, nodes * per_node};
  if (environment.contains("RANK") && number(environment, "RANK") != place.rank)
    throw std::invalid_argument("RANK is not NODE_RANK * NPROC_PER_NODE + LOCAL_RANK");
  if (environment.contains("WORLD_SIZE") && number(environment, "WORLD_SIZE") != place.world_size)
    throw std::invalid_argument("WORLD_SIZE is not NNODES * NPROC_PER_NODE");
  return place;
}

lab::Roll call_the_roll(lab::Line& line, int world_size, double deadline_s) {
  std::vector<bool> is_here(static_cast<std::size_t>(world_size));
  is_here[0] = true;
  for (int here = 1; here < world_size; ++here) {
    const auto caller = line.next_caller(deadline_s);
    if (!caller) break;
    const auto who = static_cast<std::size_t>(*caller);
    if (is_here[who]) return {.twice = *caller};
    is_here[who] = true;
  }
  lab::Roll roll;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!is_here[static_cast<std::size_t>(rank)]) roll.missing.push_back(rank);
  }
  return roll;
}

void ping_pong(lab::Rank& rank, std::span<float> ball, int rounds) {
  if (rank.rank() > 1) return;
  for (int round = 0; round < rounds; ++round) {
    rank.send(ball, 1 - rank.rank());
    rank.recv(ball, 1 - rank.rank());
    if (rank.rank() == 0) rank.note("round " + std::to_string(round) + " is over");
    if (rank.rank() == 1) {
      for (float& x : ball) x += 1;
    }
  }
}

}  // namespace my_work
