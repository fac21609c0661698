#include "cli/json_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

[[noreturn]] void refuse(const std::string& flag, const std::string& file) {
  throw UsageError(fmt::format("{} {}: {}; hint: name a file in a folder that you may write", flag, file,
                               std::strerror(errno)));
}

std::string partial(const std::string& file) {
  return file + ".partial";
}

}  // namespace

void check_writable(const std::string& flag, const std::string& file) {
  if (!std::ofstream(partial(file), std::ios::trunc)) refuse(flag, file);
  std::remove(partial(file).c_str());
}

void write_json(const std::string& flag, const std::string& file, const nlohmann::json& document) {
  std::ofstream stream(partial(file), std::ios::trunc);
  stream << document.dump(2) << "\n";
  stream.close();
  if (stream && std::rename(partial(file).c_str(), file.c_str()) == 0) return;
  const int reason = errno;
  std::remove(partial(file).c_str());
  errno = reason;
  refuse(flag, file);
}

void JsonOutput::add_to(Flags flags) {
  flags.optional_text("--json", asked_, file_, "Write JSON to FILE, or to standard output instead of text",
                      "FILE");
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
