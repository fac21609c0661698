#include "cli/plan_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "lockstep/error.h"
#include "lockstep/plan/json.h"
#include "lockstep/plan/pipeline_json.h"
#include "lockstep/plan/pipeline_text.h"
#include "lockstep/plan/text.h"

namespace lockstep::cli {

namespace {

constexpr std::streamsize kMostFileBytes = 64 << 20;

std::string contents_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::string block(1 << 16, '\0');
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    text.append(block, 0, static_cast<size_t>(file.gcount()));
    if (static_cast<std::streamsize>(text.size()) > kMostFileBytes) {
      throw UsageError(fmt::format("--file {}: more than {} bytes", path, kMostFileBytes));
    }
  }
  if (!file.is_open() || file.bad()) {
    throw UsageError(fmt::format("--file {}: cannot be read: {}", path, std::strerror(errno)));
  }
  return text;
}

/// Whether `text` begins so, after blanks.
bool starts(const std::string& text, std::string_view start) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string::npos && std::string_view(text).substr(begin).starts_with(start);
}

/// Adds the file's name to what `read` throws.
template <typename Read>
auto reading(const std::string& path, const Read& read) {
  const std::string text = contents_of(path);
  try {
    return read(text);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("--file {}: {}", path, error.what()));
  }
}

}  // namespace

plan::Plan read_plan_file(const std::string& path) {
  return reading(path, [](const std::string& text) {
    return starts(text, "{") ? plan::plan_from_json(text) : plan::parse(text);
  });
}

plan::PipelinePlan read_pipeline_file(const std::string& path) {
  return reading(path, [](const std::string& text) {
    if (starts(text, "{")) return plan::pipeline_from_json(text);
    return starts(text, "pipeline,") ? plan::pipeline_from_csv(text) : plan::parse_pipeline(text);
  });
}

}  // namespace lockstep::cli
