#include "cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <type_traits>

#include "cli/nearest.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

/// `FOLDER`, or `[LESSON]` for a word that may be left out.
std::string in_usage(const CLI::Option& word) {
  std::string text = word.get_single_name();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return word.get_required() ? text : fmt::format("[{}]", text);
}

/// CLI11's help with our own usage line.
class HelpText : public CLI::Formatter {
 public:
  HelpText(std::string name, std::string tail) : name_(std::move(name)), tail_(std::move(tail)) {
    column_width(34);
  }
  std::string make_usage(const CLI::App* app, std::string) const override {
    std::string usage = name_;
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) usage += " " + in_usage(*option);
    }
    return fmt::format("\nUsage: {} {}\n", usage, tail_);
  }

 private:
  std::string name_;
  std::string tail_;
};

std::string with_default(const std::string& help, const std::string& value) {
  return value.empty() ? help : fmt::format("{} (default {})", help, value);
}

std::function<std::string(const std::string&)> one_of(const std::vector<std::string>& choices) {
  return [choices](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
    const std::string near = nearest(text, choices);
    return fmt::format("'{}' is none of {}{}", text, fmt::join(choices, ", "),
                       near.empty() ? "" : fmt::format("; hint: did you mean {}?", near));
  };
}

/// Takes a decimal number in [low, high]. CLI11's own reading takes 010 for 8, and what is too large for the
/// largest number.
template <typename Number>
void add_number(CLI::App& app, const std::string& name, const std::function<void(const Number&)>& take,
                Number low, Number high, const std::string& help) {
  const auto read = [](const std::string& text, Number& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return end == text.data() + text.size() ? error : std::errc::invalid_argument;
  };
  const auto check = [=](const std::string& text) -> std::string {
    Number value{};
    const std::errc error = read(text, value);
    if (error == std::errc::invalid_argument)
      return fmt::format("'{}' is not a {}number", text, std::is_integral_v<Number> ? "whole " : "");
    if (error == std::errc() && value >= low && value <= high) return "";  // false for NaN too
    return fmt::format("{} is not between {} and {}", text, low, high);
  };
  const auto store = [=](const std::string& text) {
    Number value{};
    read(text, value);
    take(value);
  };
  app.add_option_function<std::string>(name, store, help)->check(check)->option_text("N");
}

template <typename Number>
void add_target(CLI::App& app, const std::string& name, Number& target, Number low, Number high,
                const std::string& help) {
  const auto take = [&target](const Number& value) { target = value; };
  add_number<Number>(app, name, take, low, high, with_default(help, fmt::format("{}", target)));
}

template <typename Number>
void add_given(CLI::App& app, const std::string& name, const std::function<void(const Number&)>& take,
               Number low, Number high, Number standard, const std::string& help) {
  add_number(app, name, take, low, high,
             with_default(help, standard < low ? "" : fmt::format("{}", standard)));
}

}  // namespace

void Flags::text(const std::string& name, std::string& target, const std::string& help,
                 const std::string& placeholder) {
  app_.add_option(name, target, with_default(help, target))->option_text(placeholder);
}

void Flags::choice(const std::string& name, std::string& target, const std::vector<std::string>& choices,
                   const std::string& help) {
  notes_.known[name] = choices;
  app_.add_option(name, target, with_default(help, target))
      ->check(one_of(choices))
      ->option_text(fmt::format("{}", fmt::join(choices, "|")));
}

void Flags::number(const std::string& name, int64_t& target, int64_t low, int64_t high,
                   const std::string& help) {
  add_target(app_, name, target, low, high, help);
}

void Flags::number(const std::string& name, double& target, double low, double high,
                   const std::string& help) {
  add_target(app_, name, target, low, high, help);
}

void Flags::given_text(const std::string& name, std::function<void(const std::string&)> take,
                       const std::vector<std::string>& choices, const std::string& standard,
                       const std::string& help) {
  auto* const option = app_.add_option_function<std::string>(name, take, with_default(help, standard));
  if (choices.empty()) {
    option->option_text("TEXT");
  } else {
    notes_.known[name] = choices;
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

void Flags::word(const std::string& name, std::string& target, const std::string& help, bool required,
                 const std::vector<std::string>& known) {
  notes_.known[name] = known;
  app_.add_option(name, target, help)->option_text(" ")->required(required);
}

void Flags::word_of(const std::string& name, std::string& target, const std::vector<std::string>& choices,
                    const std::string& help) {
  notes_.known[name] = choices;
  app_.add_option(name, target, help)->check(one_of(choices))->option_text(" ")->required();
}

void Flags::check(std::function<void()> check) {
  notes_.checks.push_back(std::move(check));
}

FlagParser::FlagParser(const std::string& name, const std::string& tail, const std::string& description,
                       const std::string& example)
    : app_(std::make_unique<CLI::App>(description, "lockstep")), notes_(std::make_unique<FlagNotes>()) {
  app_->formatter(std::make_shared<HelpText>(name, tail));
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

std::vector<FlagParser::Word> FlagParser::words() const {
  std::vector<Word> found;
  for (const CLI::Option* option : app_->get_options()) {
    if (!option->get_positional()) continue;
    const std::string& name = option->get_single_name();
    found.push_back({.name = name, .known = known(name)});
  }
  return found;
}

std::vector<std::string> FlagParser::known(const std::string& name) const {
  const auto found = notes_->known.find(name);
  return found == notes_->known.end() ? std::vector<std::string>() : found->second;
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

bool FlagParser::may_repeat(const std::string& name) const {
  const CLI::Option* option = app_->get_option_no_throw(name);
  return option != nullptr && (option->get_items_expected_max() == 0 ||
                               option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll);
}

bool FlagParser::parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 takes its words last first
  try {
    app_->parse(words);
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ConversionError& error) {  // of a flag without value, the only ones that CLI11 converts
    const std::string text = error.what();       // Could not convert: --resume = maybe
    const std::string name = text.substr(text.find("--") == std::string::npos ? 0 : text.find("--"));
    throw UsageError(fmt::format("{} takes no value; hint: leave it out", name.substr(0, name.find(' '))));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return true;
}

void FlagParser::check() const {
  for (const auto& check : notes_->checks) check();
}

std::string FlagParser::help() const {
  return app_->help();
}

}  // namespace lockstep::cli
