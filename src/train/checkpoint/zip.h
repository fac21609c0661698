#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/seal.h"

namespace lockstep::train {

/// CRC-32 as zip has it: "123456789" gives 0xcbf43926.
uint32_t crc32(std::span<const std::byte> bytes);

/// A zip archive of entries that are stored as they are, each at a multiple of 64 bytes, as torch.save()
/// writes them. The plain form of zip ends at 4 GiB, and at 65,534 entries.
class ZipArchive {
 public:
  /// Adds an entry; `bytes` must stay as long as this object. False, and nothing is added, if it has no room.
  bool add(const std::string& name, std::span<const std::byte> bytes);
  /// The whole file; valid as long as this object. Nothing can be added afterwards.
  const Pieces& finish();

 private:
  struct Entry {
    std::string name;
    std::span<const std::byte> bytes;
    uint64_t offset = 0;
  };

  std::vector<Entry> entries_;
  uint64_t offset_ = 0;  // where the next entry begins
  uint64_t directory_bytes_ = 0;
  std::deque<std::string> headers_;
  Pieces pieces_;
};

}  // namespace lockstep::train
