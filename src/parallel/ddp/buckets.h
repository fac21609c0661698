#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::ddp {

/// What a bucket is made of: a gradient's size, and a number that is the same for gradients of the same type.
struct GradientSize {
  int64_t bytes;
  int type;
};

/// A bucket cap that every gradient exceeds.
constexpr double kOneGradientMib = 1e-6;

/// In which order gradients are expected before one has been seen: backward goes from the last layer to the
/// first.
std::vector<size_t> backward_order(size_t count);

/// Puts gradients, by index, into buckets in the order given. A bucket holds one type and is closed when it
/// has at least the cap; the first one to be closed has a cap of its own. Buckets come in the order in which
/// their last gradients stand in `order`, so that they can be sent one after the other.
std::vector<std::vector<size_t>> assign_buckets(const std::vector<size_t>& order,
                                                const std::vector<GradientSize>& sizes,
                                                int64_t first_cap_bytes, int64_t cap_bytes);

}  // namespace lockstep::ddp
