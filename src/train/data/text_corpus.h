#pragma once

#include <filesystem>
#include <string>

namespace lockstep::train {

/// The longest corpus that read_text() takes.
inline constexpr uintmax_t kMaxCorpusBytes = uintmax_t{1} << 30;

/// All text below `path`: a file, or every regular file of a folder (recursive, in order of their paths,
/// those whose name or folder is hidden left out), joined by a newline.
///
/// Throws UsageError, naming the file, if there is none, it cannot be read, is empty, or is not UTF-8, naming
/// the byte's position (from 0) and value: overlong forms, surrogates and code points above U+10FFFF are not
/// UTF-8. Files are at most kMaxCorpusBytes together.
std::string read_text(const std::filesystem::path& path);

}  // namespace lockstep::train
