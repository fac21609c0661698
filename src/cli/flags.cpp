#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

/// CLI11's help with our own usage line.
class HelpText : public CLI::Formatter {
 public:
  explicit HelpText(std::string usage) : usage_(std::move(usage)) { column_width(34); }
  std::string make_usage(const CLI::App*, std::string) const override { return "\nUsage: " + usage_ + "\n"; }

 private:
  std::string usage_;
};

std::string with_default(const std::string& help, const std::string& value) {
  return value.empty() ? help : fmt::format("{} (default {})", help, value);
}

std::function<std::string(const std::string&)> one_of(const std::vector<std::string>& choices) {
  return [choices](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
    return fmt::format("'{}' is none of {}", text, fmt::join(choices, ", "));
  };
}

template <typename Number>
std::function<std::string(const std::string&)> between(Number low, Number high) {
  return [low, high](const std::string& text) -> std::string {
    Number value{};
    if (!CLI::detail::lexical_cast(text, value)) return fmt::format("'{}' is not a number", text);
    if (value >= low && value <= high) return "";  // false for NaN too
    return fmt::format("{} is not between {} and {}", text, low, high);
  };
}

template <typename Number>
void add_number(CLI::App& app, const std::string& name, Number& target, Number low, Number high,
                const std::string& help) {
  app.add_option(name, target, with_default(help, fmt::format("{}", target)))
      ->check(between(low, high))
      ->option_text("N");
}

template <typename Number>
void add_given(CLI::App& app, const std::string& name, const std::function<void(const Number&)>& take,
               Number low, Number high, Number standard, const std::string& help) {
  const std::string shown = standard < low ? "" : fmt::format("{}", standard);
  app.add_option_function<Number>(name, take, with_default(help, shown))
      ->check(between(low, high))
      ->option_text("N");
}

}  // namespace

void Flags::text(const std::string& name, std::string& target, const std::string& help,
                 const std::string& placeholder) {
  app_.add_option(name, target, with_default(help, target))->option_text(placeholder);
}

void Flags::choice(const std::string& name, std::string& target, const std::vector<std::string>& choices,
                   const std::string& help) {
  app_.add_option(name, target, with_default(help, target))
      ->check(one_of(choices))
      ->option_text(fmt::format("{}", fmt::join(choices, "|")));
}

void Flags::number(const std::string& name, int64_t& target, int64_t low, int64_t high,
                   const std::string& help) {
  add_number(app_, name, target, low, high, help);
}

void Flags::number(const std::string& name, double& target, double low, double high,
                   const std::string& help) {
  add_number(app_, name, target, low, high, help);
}

void Flags::given_text(const std::string& name, std::function<void(const std::string&)> take,
                       const std::vector<std::string>& choices, const std::string& standard,
                       const std::string& help) {
  auto* const option = app_.add_option_function<std::string>(name, take, with_default(help, standard));
  if (choices.empty()) {
    option->option_text("TEXT");
  } else {
    option->check(one_of(choices))->option_text(fmt::format("{}", fmt::join(choices, "|")));
  }
}

void Flags::given_number(const std::string& name, std::function<void(const int64_t&)> take, int64_t low,
                         int64_t high, int64_t standard, const std::string& help) {
  add_given(app_, name, take, low, high, standard, help);
}

void Flags::given_number(const std::string& name, std::function<void(const double&)> take, double low,
                         double high, double standard, const std::string& help) {
  add_given(app_, name, take, low, high, standard, help);
}

void Flags::path(const std::string& name, std::filesystem::path& target, const std::string& help,
                 const std::string& placeholder) {
  const auto store = [&target](const std::string& value) { target = value; };
  app_.add_option_function<std::string>(name, store, help)->option_text(placeholder);
}

void Flags::toggle(const std::string& name, bool& target, const std::string& help) {
  app_.add_flag(name, target, help);
}

void Flags::texts(const std::string& name, std::vector<std::string>& target, const std::string& help,
                  const std::string& placeholder) {
  app_.add_option(name, target, help)->option_text(placeholder)->expected(1)->take_all();
}

void Flags::optional_text(const std::string& name, bool& given, std::string& target, const std::string& help,
                          const std::string& placeholder) {
  const auto store = [&given, &target](const std::vector<std::string>& values) {
    given = true;
    if (!values.empty()) target = values.back();
    return true;
  };
  app_.add_option(name, store, help)->expected(0, 1)->option_text(fmt::format("[{}]", placeholder));
}

void Flags::word(const std::string& name, std::string& target, const std::string& help, bool required) {
  app_.add_option(name, target, help)->option_text(" ")->required(required);
}

void Flags::word_of(const std::string& name, std::string& target, const std::vector<std::string>& choices,
                    const std::string& help) {
  app_.add_option(name, target, help)->check(one_of(choices))->option_text(" ")->required();
}

FlagParser::FlagParser(const std::string& usage, const std::string& description, const std::string& example)
    : app_(std::make_unique<CLI::App>(description, "lockstep")) {
  app_->formatter(std::make_shared<HelpText>(usage));
  app_->footer(fmt::format("Example:\n  {}", example));
  app_->set_help_flag("-h,--help", "Show this and exit");
}

FlagParser::FlagParser(FlagParser&&) noexcept = default;
FlagParser::~FlagParser() = default;

std::vector<std::string> FlagParser::names() const {
  std::vector<std::string> found;
  for (const CLI::Option* option : app_->get_options()) {
    for (const auto& name : option->get_lnames()) found.push_back("--" + name);
    for (const auto& name : option->get_snames()) found.push_back("-" + name);
  }
  return found;
}

bool FlagParser::knows(const std::string& name) const {
  return app_->get_option_no_throw(name) != nullptr;
}

bool FlagParser::takes_value(const std::string& name) const {
  const CLI::Option* option = app_->get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_min() > 0;
}

bool FlagParser::may_take_value(const std::string& name) const {
  const CLI::Option* option = app_->get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_min() == 0 && option->get_items_expected_max() > 0;
}

bool FlagParser::parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 takes its words last first
  try {
    app_->parse(words);
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return true;
}

std::string FlagParser::help() const {
  return app_->help();
}

}  // namespace lockstep::cli
