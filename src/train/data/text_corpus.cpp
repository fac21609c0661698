#include "train/data/text_corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/error.h"
#include "train/data/file_bytes.h"
#include "train/data/utf8.h"

namespace lockstep::train {

namespace fs = std::filesystem;

namespace {

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with(".");
}

/// The regular files below a folder, sorted by their paths.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  try {
    for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::end(entry); ++entry) {
      if (is_hidden(entry->path())) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file()) {
        files.push_back(entry->path());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw UsageError(fmt::format("{}: cannot be read: {}; hint: check its permissions", shown(error.path1()),
                                 error.code().message()));
  }
  if (files.empty()) {
    throw UsageError(
        fmt::format("{}: the folder holds no file; hint: hidden ones are left out", shown(folder)));
  }
  std::ranges::sort(files);
  return files;
}

std::string read_file(const fs::path& file, uintmax_t most) {
  std::string text = read_bytes(file, most);
  if (text.empty()) throw UsageError(fmt::format("{}: is empty; hint: name a file with text", shown(file)));
  if (const auto position = first_invalid_byte(text)) {
    throw UsageError(
        fmt::format("{}: byte {} is 0x{:02x}, which begins no UTF-8 character; hint: text is read "
                    "as UTF-8, convert it by iconv",
                    shown(file), *position, static_cast<unsigned char>(text[*position])));
  }
  return text;
}

}  // namespace

std::string read_text(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return read_file(path, kMaxCorpusBytes);
  std::string text;
  for (const fs::path& file : files_below(path)) {
    if (!text.empty()) text += '\n';
    text += read_file(file, kMaxCorpusBytes - std::min<uintmax_t>(text.size(), kMaxCorpusBytes));
  }
  return text;
}

}  // namespace lockstep::train
