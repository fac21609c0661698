#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::cli {

class Flags;

/// Writes to `file` whole or not at all, to what a link leads to, and into a device or pipe; throws
/// UsageError naming the flag and the file.
void write_json(const std::string& flag, const std::string& file, const nlohmann::json& document);

/// Throws as write_json() would, before there is anything to write: for what takes long to make.
void check_writable(const std::string& flag, const std::string& file);

/// The flag `--json [FILE]`. Without FILE standard output holds the JSON and nothing else.
class JsonOutput {
 public:
  /// The object must outlive the parsing and stay where it is.
  void add_to(Flags flags,
              const std::string& help = "Write JSON to FILE, or to standard output instead of text");

  bool asked() const { return asked_; }
  /// Throws if FILE cannot be written. Happens by itself before the verb's action.
  void check() const;
  /// Text for people goes to standard output unless the JSON does.
  bool prints_text() const { return !asked_ || !file_.empty(); }
  /// Writes the document to FILE (whole or not at all) or to standard output. Does nothing when not asked.
  void write(const nlohmann::json& document) const;

 private:
  bool asked_ = false;
  std::string file_;
};

}  // namespace lockstep::cli
