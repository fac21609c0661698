#include "train/checkpoint/seal.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "train/checkpoint/files.h"
#include "train/checkpoint/strict_json.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

// As much as is hashed before it is written: the cache still has it then.
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kMostParts = 512;  // of one writev(); Linux takes 1024
constexpr size_t kMostNameLength = 200;

class Hash {
 public:
  Hash() { XXH3_64bits_reset(&state_); }

  void add(std::span<const std::byte> bytes) {
    if (!bytes.empty()) XXH3_64bits_update(&state_, bytes.data(), bytes.size());
    bytes_ += bytes.size();
  }

  Seal seal(std::string file) const {
    return {.file = std::move(file), .bytes = bytes_, .xxh3 = XXH3_64bits_digest(&state_)};
  }

 private:
  XXH3_state_t state_;
  uint64_t bytes_ = 0;
};

void write_pieces(File& file, const Pieces& pieces, Hash& hash) {
  std::vector<iovec> parts;
  size_t room = kBlockBytes;
  const auto flush = [&] {
    file.write(parts);
    parts.clear();
    room = kBlockBytes;
  };
  for (auto piece : pieces) {
    while (!piece.empty()) {
      const auto part = piece.first(std::min(piece.size(), room));
      hash.add(part);
      parts.push_back({const_cast<std::byte*>(part.data()), part.size()});  // writev() only reads
      room -= part.size();
      piece = piece.subspan(part.size());
      if (room == 0 || parts.size() == kMostParts) flush();
    }
  }
  flush();
}

}  // namespace

bool is_file_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.front() != '.' && name.size() <= kMostNameLength &&
         std::ranges::all_of(name, allowed);
}

Seal write_sealed(const fs::path& folder, const std::string& name, const Pieces& pieces) {
  if (!is_file_name(name)) {
    throw UsageError(fmt::format(
        "checkpoint: {} is no name for a file; hint: letters, digits, '-', '_' and '.'", shown_text(name)));
  }
  return write_new_file(folder / name, pieces);
}

Seal write_new_file(const fs::path& path, const Pieces& pieces) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  try {
    Hash hash;
    write_pieces(file, pieces, hash);
    file.sync();
    file.close();
    return hash.seal(path.filename().string());
  } catch (...) {
    std::error_code ignored;
    fs::remove(path, ignored);
    throw;
  }
}

Seal seal_of(const fs::path& path) {
  File file(path, O_RDONLY);
  file.bytes();  // refuses what is not a regular file
  Hash hash;
  std::vector<std::byte> block(kBlockBytes);
  while (const size_t count = file.read(block)) hash.add(std::span(block).first(count));
  return hash.seal(path.filename().string());
}

}  // namespace lockstep::train
