#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/safetensors.h"

namespace lockstep::train {

namespace {

std::span<const std::byte> map_file(const std::filesystem::path& path) {
  const File file(path, O_RDONLY);
  const uint64_t bytes = file.bytes();
  if (bytes == 0) throw Error(fmt::format("safetensors {}: is empty", path.string()));
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (memory == MAP_FAILED) {
    throw Error(fmt::format("safetensors {}: cannot be mapped: {}", path.string(), std::strerror(errno)));
  }
  return {static_cast<const std::byte*>(memory), static_cast<size_t>(bytes)};
}

void unmap(std::span<const std::byte> mapping) {
  if (!mapping.empty()) munmap(const_cast<std::byte*>(mapping.data()), mapping.size());
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file) : mapping_(map_file(file)) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(mapping_.data()), mapping_.size());
    header_ = parse_safetensors(text, mapping_.size(), file.string());
    for (size_t i = 0; i < header_.tensors.size(); ++i) position_of_[header_.tensors[i].name] = i;
  } catch (...) {
    unmap(mapping_);
    throw;
  }
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : mapping_(std::exchange(other.mapping_, {})),
      header_(std::exchange(other.header_, {})),
      position_of_(std::exchange(other.position_of_, {})) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  if (this == &other) return *this;
  unmap(mapping_);
  mapping_ = std::exchange(other.mapping_, {});
  header_ = std::exchange(other.header_, {});
  position_of_ = std::exchange(other.position_of_, {});
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  unmap(mapping_);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = position_of_.find(name);
  return found == position_of_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& tensor) const {
  return mapping_.subspan(header_.data_begin + tensor.begin, tensor.end - tensor.begin);
}

}  // namespace lockstep::train
