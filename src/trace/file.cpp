#include "lockstep/trace/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "launch/whole_file.h"
#include "lockstep/error.h"
#include "lockstep/trace/json.h"

namespace lockstep::trace {

namespace {

namespace fs = std::filesystem;

bool is_rank_file(const fs::path& path) {
  const std::string stem = path.stem().string();
  constexpr std::string_view kPrefix = "rank_";
  return path.extension() == ".json" && stem.size() > kPrefix.size() && stem.starts_with(kPrefix) &&
         stem.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

Trace read_one(const fs::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size > static_cast<std::streamoff>(kMostJsonBytes)) {
    throw UsageError(fmt::format("trace {}: {} bytes, more than {}", path.string(), size, kMostJsonBytes));
  }
  std::string text(static_cast<size_t>(std::max<std::streamoff>(size, 0)), '\0');
  file.seekg(0);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file)
    throw UsageError(fmt::format("trace {}: cannot be read: {}", path.string(), std::strerror(errno)));
  try {
    return parse_json(text);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("trace {}: {}", path.string(), error.what()));
  }
}

}  // namespace

void write_file(const fs::path& path, std::string_view text) {
  if (const int reason = launch::write_whole_file(path, text)) {
    throw Error(fmt::format("trace: cannot write {}: {}", path.string(), std::strerror(reason)));
  }
}

Trace read(const fs::path& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) return read_one(path);
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(path, failure), end; !failure && entry != end; entry.increment(failure)) {
    if (is_rank_file(entry->path())) files.push_back(entry->path());
  }
  if (failure) throw UsageError(fmt::format("trace {}: {}", path.string(), failure.message()));
  if (files.empty()) throw UsageError(fmt::format("trace {}: has no rank_<k>.json", path.string()));
  std::ranges::sort(files);
  std::vector<Trace> traces;
  for (const fs::path& file : files) traces.push_back(read_one(file));
  return merge(traces);
}

}  // namespace lockstep::trace
