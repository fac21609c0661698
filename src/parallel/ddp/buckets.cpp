#include "parallel/ddp/buckets.h"

#include <algorithm>
#include <map>

namespace lockstep::ddp {

std::vector<size_t> backward_order(size_t count) {
  std::vector<size_t> order;
  for (size_t i = count; i-- > 0;) order.push_back(i);
  return order;
}

std::vector<std::vector<size_t>> assign_buckets(const std::vector<size_t>& order,
                                                const std::vector<GradientSize>& sizes,
                                                int64_t first_cap_bytes, int64_t cap_bytes) {
  struct Open {
    std::vector<size_t> gradients;
    int64_t bytes = 0;
    size_t last = 0;  ///< Where its last gradient stands.
  };
  std::map<int, Open> open;
  std::vector<std::vector<size_t>> closed;
  for (size_t position = 0; position < order.size(); ++position) {
    const auto& [bytes, type] = sizes[order[position]];
    Open& bucket = open[type];
    bucket.gradients.push_back(order[position]);
    bucket.bytes += bytes;
    bucket.last = position;
    if (bucket.bytes < (closed.empty() ? std::min(first_cap_bytes, cap_bytes) : cap_bytes)) continue;
    closed.push_back(std::move(bucket.gradients));
    open.erase(type);
  }
  std::vector<Open> rest;
  for (auto& [type, bucket] : open) rest.push_back(std::move(bucket));
  std::sort(rest.begin(), rest.end(), [](const Open& a, const Open& b) { return a.last < b.last; });
  for (auto& bucket : rest) closed.push_back(std::move(bucket.gradients));
  return closed;
}

}  // namespace lockstep::ddp
