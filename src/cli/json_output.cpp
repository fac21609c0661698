#include "cli/json_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel follows

[[noreturn]] void refuse(const std::string& flag, const std::string& file, int reason) {
  throw UsageError(fmt::format("{} {}: {}; hint: name a file in a folder that you may write", flag, file,
                               std::strerror(reason)));
}

/// What stands behind links, there or not, if a rename may put a new file in its place. Nothing for devices,
/// pipes and files that are open already (/dev/stdout, /dev/fd/63): those are written into.
std::optional<fs::path> replaceable(fs::path path) {
  std::error_code ignored;
  for (int links = 0; fs::is_symlink(path, ignored) && links < kMostLinks; ++links) {
    const fs::path folder = fs::canonical(fs::absolute(path).parent_path(), ignored);
    if (folder.string().starts_with("/proc/")) return std::nullopt;
    path = folder / fs::read_symlink(path, ignored);
  }
  const auto type = fs::status(path, ignored).type();
  if (type == fs::file_type::regular || type == fs::file_type::not_found) return path;
  return std::nullopt;
}

std::string partial(const fs::path& file) {
  return file.string() + ".partial";
}

/// Returns errno, or 0.
int write_into(const std::string& file, const std::string& text) {
  std::FILE* const stream = std::fopen(file.c_str(), "w");
  if (stream == nullptr) return errno;
  int reason = std::fwrite(text.data(), 1, text.size(), stream) == text.size() ? 0 : errno;
  if (std::fclose(stream) != 0 && reason == 0) reason = errno;
  return reason;
}

}  // namespace

void check_writable(const std::string& flag, const std::string& file) {
  const auto target = replaceable(file);
  if (!target) {  // not opened: whoever reads a pipe would take the closing for its end
    if (fs::is_directory(file)) refuse(flag, file, EISDIR);
    if (access(file.c_str(), W_OK) != 0) refuse(flag, file, errno);
    return;
  }
  if (const int reason = write_into(partial(*target), "")) refuse(flag, file, reason);
  std::remove(partial(*target).c_str());
}

void write_json(const std::string& flag, const std::string& file, const nlohmann::json& document) {
  const std::string text = document.dump(2) + "\n";
  const auto target = replaceable(file);
  int reason = write_into(target ? partial(*target) : file, text);
  if (target) {
    if (reason == 0 && std::rename(partial(*target).c_str(), target->c_str()) != 0) reason = errno;
    if (reason != 0) std::remove(partial(*target).c_str());
  }
  if (reason != 0) refuse(flag, file, reason);
}

void JsonOutput::add_to(Flags flags, const std::string& help) {
  flags.optional_text("--json", asked_, file_, help, "FILE");
  flags.check([this] { check(); });
}

void JsonOutput::check() const {
  if (!file_.empty()) check_writable("--json", file_);
}

void JsonOutput::write(const nlohmann::json& document) const {
  if (!asked_) return;
  if (file_.empty()) {
    fmt::print("{}\n", document.dump(2));
  } else {
    write_json("--json", file_, document);
  }
}

}  // namespace lockstep::cli
