#include "train/data/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/error.h"
#include "train/data/file_bytes.h"

namespace lockstep::train {

namespace {

constexpr uint32_t kLabels = 0x00000801;
constexpr uint32_t kImages = 0x00000803;
constexpr size_t kWord = 4;
constexpr size_t kMaxHeader = 4 * kWord;

uint32_t word_at(std::string_view bytes, size_t position) {
  uint32_t value = 0;
  for (size_t i = 0; i < kWord; ++i) {
    value = (value << 8U) | static_cast<unsigned char>(bytes[position + i]);
  }
  return value;
}

[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
  throw UsageError(
      fmt::format("{}: {}; hint: an IDX file of unsigned bytes is expected, uncompressed, as in "
                  "MNIST's train-images-idx3-ubyte",
                  name, reason));
}

std::vector<int64_t> read_shape(std::string_view bytes, const std::string& name) {
  if (bytes.size() < kWord)
    refuse(name, fmt::format("{} bytes are too few for a magic number", bytes.size()));
  const uint32_t magic = word_at(bytes, 0);
  if (magic != kLabels && magic != kImages) {
    refuse(name,
           fmt::format("the magic number is 0x{:08x}, not 0x{:08x} or 0x{:08x}", magic, kLabels, kImages));
  }
  const size_t dimensions = magic & 0xffU;
  if (bytes.size() < (1 + dimensions) * kWord) {
    refuse(name, fmt::format("{} bytes are too few for {} dimensions", bytes.size(), dimensions));
  }
  std::vector<int64_t> shape;
  for (size_t i = 1; i <= dimensions; ++i) shape.push_back(word_at(bytes, i * kWord));
  return shape;
}

/// The product of the dimensions; they stand in the file, so it may be anything.
int64_t count_of(const std::vector<int64_t>& shape, const std::string& name) {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension == 0)
      refuse(name, fmt::format("its shape is {}, without a value", fmt::join(shape, " x ")));
    if (dimension > kMaxIdxValues / count) {
      refuse(name,
             fmt::format("its shape is {}, more than {} values", fmt::join(shape, " x "), kMaxIdxValues));
    }
    count *= dimension;
  }
  return count;
}

}  // namespace

Idx parse_idx(std::string_view bytes, const std::string& name) {
  Idx idx{.shape = read_shape(bytes, name), .values = {}};
  const int64_t count = count_of(idx.shape, name);
  const std::string_view values = bytes.substr((1 + idx.shape.size()) * kWord);
  if (values.size() != static_cast<size_t>(count)) {
    refuse(name, fmt::format("its shape is {}, {} values, but {} bytes follow", fmt::join(idx.shape, " x "),
                             count, values.size()));
  }
  idx.values.assign(values.begin(), values.end());
  return idx;
}

Idx read_idx(const std::filesystem::path& file) {
  return parse_idx(read_bytes(file, static_cast<uintmax_t>(kMaxIdxValues) + kMaxHeader), shown(file));
}

}  // namespace lockstep::train
