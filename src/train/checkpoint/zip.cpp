#include "train/checkpoint/zip.h"

#include <array>

namespace lockstep::train {

namespace {

constexpr uint64_t kMostArchiveBytes = 0xfffffffe;  // one more would mean: see the larger form
constexpr size_t kMostEntries = 0xfffe;
constexpr uint64_t kEntryAlignment = 64;
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint64_t kDirectoryEntryBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kExtraHeaderBytes = 4;
constexpr uint16_t kVersion = 10;
constexpr uint16_t kFirstDay = 1 << 5 | 1;  // 1980-01-01: the same weights make the same file

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xedb88320U : value >> 1;
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrc32Table = crc_table();

void put(std::string& text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

/// The length of the padding between the header of an entry at `offset` and its bytes.
uint64_t padding(uint64_t offset, const std::string& name) {
  const uint64_t begin = offset + kLocalHeaderBytes + name.size() + kExtraHeaderBytes;
  return (kEntryAlignment - begin % kEntryAlignment) % kEntryAlignment;
}

/// What both headers of an entry have: from the flags to the length of the name.
std::string facts(const std::string& name, uint64_t bytes, uint32_t crc) {
  std::string text;
  put(text, 0, 2);  // flags
  put(text, 0, 2);  // stored
  put(text, 0, 2);  // time
  put(text, kFirstDay, 2);
  put(text, crc, 4);
  put(text, bytes, 4);
  put(text, bytes, 4);
  put(text, name.size(), 2);
  return text;
}

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes) {
  uint32_t crc = 0xffffffffU;
  for (const std::byte byte : bytes) crc = crc >> 8 ^ kCrc32Table[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

bool ZipArchive::add(const std::string& name, std::span<const std::byte> bytes) {
  const uint64_t header = kLocalHeaderBytes + name.size() + kExtraHeaderBytes + padding(offset_, name);
  const uint64_t taken = offset_ + header + directory_bytes_ + kDirectoryEntryBytes + name.size() + kEndBytes;
  if (entries_.size() == kMostEntries || taken > kMostArchiveBytes ||
      bytes.size() > kMostArchiveBytes - taken)
    return false;
  entries_.push_back({.name = name, .bytes = bytes, .offset = offset_});
  offset_ += header + bytes.size();
  directory_bytes_ += kDirectoryEntryBytes + name.size();
  return true;
}

const Pieces& ZipArchive::finish() {
  std::string directory;
  for (const Entry& entry : entries_) {
    const std::string shared = facts(entry.name, entry.bytes.size(), crc32(entry.bytes));
    const uint64_t pad = padding(entry.offset, entry.name);
    std::string& local = headers_.emplace_back("PK\3\4");
    put(local, kVersion, 2);
    local += shared;
    put(local, kExtraHeaderBytes + pad, 2);
    local += entry.name + "FB";
    put(local, pad, 2);
    local.append(pad, 'Z');
    pieces_.push_back(std::as_bytes(std::span(local)));
    pieces_.push_back(entry.bytes);

    directory += "PK\1\2";
    put(directory, kVersion, 2);
    put(directory, kVersion, 2);
    directory += shared;
    directory.append(12, '\0');  // no extra field, comment, disk, attributes
    put(directory, entry.offset, 4);
    directory += entry.name;
  }
  std::string& end = headers_.emplace_back(std::move(directory));
  end += "PK\5\6";
  put(end, 0, 4);  // disks
  put(end, entries_.size(), 2);
  put(end, entries_.size(), 2);
  put(end, directory_bytes_, 4);
  put(end, offset_, 4);
  put(end, 0, 2);  // comment
  pieces_.push_back(std::as_bytes(std::span(end)));
  return pieces_;
}

}  // namespace lockstep::train
