#include "cli/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/error.h"
#include "lockstep/plan/json.h"
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

plan::Plan from_json_text(const std::string& text) {
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    throw UsageError(fmt::format("plan json line {}: no valid JSON from here on",
                                 1 + std::count(text.begin(), end, '\n')));
  }
  return plan::plan_from_json(document);
}

}  // namespace

plan::Plan read_plan_file(const std::string& path) {
  const std::string text = contents_of(path);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  try {
    return begin != std::string::npos && text[begin] == '{' ? from_json_text(text) : plan::parse(text);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("--file {}: {}", path, error.what()));
  }
}

}  // namespace lockstep::cli
