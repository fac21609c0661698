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

void JsonOutput::add_to(Flags flags) {
  flags.optional_text("--json", asked_, file_, "Write JSON to FILE, or to standard output instead of text",
                      "FILE");
}

void JsonOutput::write(const nlohmann::json& document) const {
  if (!asked_) return;
  const std::string text = document.dump(2) + "\n";
  if (file_.empty()) {
    fmt::print("{}", text);
    return;
  }
  const std::string partial = file_ + ".partial";
  std::ofstream stream(partial, std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream || std::rename(partial.c_str(), file_.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(partial.c_str());
    throw UsageError(
        fmt::format("--json {}: {}; hint: name a file in a folder that you may write", file_, reason));
  }
}

}  // namespace lockstep::cli
