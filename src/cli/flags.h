#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// What CLI11 does not keep of flags and words.
struct FlagNotes {
  std::vector<std::function<void()>> checks;                   ///< See Flags::check().
  std::map<std::string, std::vector<std::string>> known = {};  ///< By name: the values there are.
};

/// A verb's flags. A thin face of CLI11, which costs ten seconds in every file that includes it: only the
/// files behind this header do. Targets must outlive the parsing and hold the default beforehand.
class Flags {
 public:
  Flags(CLI::App& app, FlagNotes& notes) : app_(app), notes_(notes) {}

  void text(const std::string& name, std::string& target, const std::string& help,
            const std::string& placeholder = "TEXT");
  void choice(const std::string& name, std::string& target, const std::vector<std::string>& choices,
              const std::string& help);
  void number(const std::string& name, int64_t& target, int64_t low, int64_t high, const std::string& help);
  void number(const std::string& name, double& target, double low, double high, const std::string& help);
  /// Flags that call `take` with their value if they are there; `standard` is what holds otherwise, and is
  /// told unless it is out of bounds. A text is one of `choices`, or any if there are none.
  void given_text(const std::string& name, std::function<void(const std::string&)> take,
                  const std::vector<std::string>& choices, const std::string& standard,
                  const std::string& help);
  void given_number(const std::string& name, std::function<void(const int64_t&)> take, int64_t low,
                    int64_t high, int64_t standard, const std::string& help);
  void given_number(const std::string& name, std::function<void(const double&)> take, double low, double high,
                    double standard, const std::string& help);
  void path(const std::string& name, std::filesystem::path& target, const std::string& help,
            const std::string& placeholder);
  void toggle(const std::string& name, bool& target, const std::string& help);
  /// A flag that may be given several times.
  void texts(const std::string& name, std::vector<std::string>& target, const std::string& help,
             const std::string& placeholder = "TEXT");
  /// A flag whose value may be left out; `given` tells whether the flag was there.
  void optional_text(const std::string& name, bool& given, std::string& target, const std::string& help,
                     const std::string& placeholder = "TEXT");
  /// A word without a dash; `required` refuses its absence. `known` words are offered, others may do too.
  void word(const std::string& name, std::string& target, const std::string& help, bool required,
            const std::vector<std::string>& known = {});
  /// A word without a dash that must be there and be one of `choices`.
  void word_of(const std::string& name, std::string& target, const std::vector<std::string>& choices,
               const std::string& help);
  /// Runs between the parsing and the verb's action: throws for a value that would fail only at the end.
  void check(std::function<void()> check);

 private:
  CLI::App& app_;
  FlagNotes& notes_;
};

/// A set of parsed flags: the CLI11 side of it, for command_line.cpp alone.
class FlagParser {
 public:
  /// A word without a dash.
  struct Word {
    std::string name;
    std::vector<std::string> known;  ///< See Flags::word().
  };

  /// The usage line has the words between `name` and `tail`.
  FlagParser(const std::string& name, const std::string& tail, const std::string& description,
             const std::string& example);
  FlagParser(FlagParser&&) noexcept;
  ~FlagParser();

  Flags flags() { return {*app_, *notes_}; }
  /// All names with their dashes, --help included.
  std::vector<std::string> names() const;
  std::vector<Word> words() const;
  /// The values of a flag or word that has a fixed set of them.
  std::vector<std::string> known(const std::string& name) const;
  bool knows(const std::string& name) const;
  /// Whether the word after this flag is its value.
  bool takes_value(const std::string& name) const;
  /// Whether the word after this flag is its value unless it looks like a flag.
  bool may_take_value(const std::string& name) const;
  /// Whether this flag may be there more than once.
  bool may_repeat(const std::string& name) const;
  /// Fills the targets; returns false when help was asked for. Throws UsageError without the verb's name.
  bool parse(std::vector<std::string> words);
  /// Runs what Flags::check() asked for.
  void check() const;
  std::string help() const;

 private:
  std::unique_ptr<CLI::App> app_;
  std::unique_ptr<FlagNotes> notes_;
};

}  // namespace lockstep::cli
