#include "cli/json_output.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "launch/whole_file.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

[[noreturn]] void refuse(const std::string& flag, const std::string& file, int reason) {
  throw UsageError(fmt::format("{} {}: {}; hint: name a file in a folder that you may write", flag, file,
                               std::strerror(reason)));
}

}  // namespace

void check_writable(const std::string& flag, const std::string& file) {
  if (const int reason = launch::check_whole_file(file)) refuse(flag, file, reason);
}

void write_json(const std::string& flag, const std::string& file, const nlohmann::json& document) {
  if (const int reason = launch::write_whole_file(file, document.dump(2) + "\n")) refuse(flag, file, reason);
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
