#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::cli {

/// The flag `--json [FILE]`. Without FILE standard output holds the JSON and nothing else.
class JsonOutput {
 public:
  void add_to(CLI::App& app);

  bool asked() const;
  /// Text for people goes to standard output unless the JSON does.
  bool prints_text() const { return !asked() || !file_.empty(); }
  /// Writes the document to FILE (whole or not at all) or to standard output. Does nothing when not asked.
  void write(const nlohmann::json& document) const;

 private:
  CLI::Option* option_ = nullptr;
  std::string file_;
};

}  // namespace lockstep::cli
