#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

/// What a file was when it was written: any change of its bytes breaks it.
struct Seal {
  std::string file;    ///< Its name, without a folder.
  uint64_t bytes = 0;  ///< Its length.
  uint64_t xxh3 = 0;   ///< XXH3, 64 bits, of all its bytes.

  bool operator==(const Seal&) const = default;
};

/// The contents of a file, in order. They must not change while it is written.
using Pieces = std::vector<std::span<const std::byte>>;

/// Whether a file of a checkpoint may be named so: letters, digits, '-', '_' and '.', not '.' first, at most
/// 200. So no name leads out of the folder.
bool is_file_name(std::string_view name);

/// Writes the new file `name` in `folder`, waits until the disk has it, and returns its seal, computed from
/// what was given: a disk that alters it is found out later. Throws UsageError if the name is no file name,
/// Error if the file is there already (which is then left alone) or cannot be written whole (which leaves
/// none).
Seal write_sealed(const std::filesystem::path& folder, const std::string& name, const Pieces& pieces);

/// The same for a file with any name.
Seal write_new_file(const std::filesystem::path& file, const Pieces& pieces);

/// Reads a whole file; throws Error if that cannot be done.
Seal seal_of(const std::filesystem::path& file);

}  // namespace lockstep::train
