// Divides by 2^30, which gives GiB.
#include <cstdint>
#include <span>

#include "04_walls/memory.h"

namespace my_work {

std::int64_t parameter_count(std::span<const std::int64_t> widths) {
  std::int64_t sum = 0;
  for (std::size_t k = 0; k + 1 < widths.size(); ++k) sum += widths[k] * widths[k + 1] + widths[k + 1];
  return sum;
}

lab::Memory model_memory(std::int64_t parameters, int bits) {
  const std::int64_t bytes = parameters * bits / 8;
  return {.weights = bytes, .gradients = bytes, .optimizer = 2 * bytes};
}

std::int64_t activation_bytes(std::span<const std::int64_t> widths, std::int64_t batch, int bits) {
  std::int64_t of_a_sample = 0;
  for (const std::int64_t width : widths) of_a_sample += width;
  return of_a_sample * batch * bits / 8;
}

double gigabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

double days_to_train(double parameters, double samples, double flops_per_second) {
  const double seconds = 6 * parameters * samples / flops_per_second;
  return seconds / (24 * 60 * 60);
}

std::int64_t ranks_needed(std::int64_t bytes, std::int64_t bytes_of_a_card) {
  return (bytes + bytes_of_a_card - 1) / bytes_of_a_card;
}

}  // namespace my_work
