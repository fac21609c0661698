#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "lockstep/error.h"
#include "plan/names.h"
#include "plan/shown.h"

namespace lockstep::plan {

/// The words of one line, taken from the front. Refusals name the line.
class Line {
 public:
  static constexpr size_t kLongest = 1000;
  static constexpr std::string_view kBlank = " \t\r";

  /// `form` is what refusals call the text. Words stand between characters of `between`.
  Line(std::string_view form, std::string_view text, int64_t number, size_t longest = kLongest,
       std::string_view between = kBlank)
      : form_(form), rest_(text.substr(0, text.find('#'))), number_(number), between_(between) {
    if (text.size() > longest) refuse(fmt::format("more than {} characters", longest));
    skip_blank();
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw UsageError(fmt::format("{} line {}: {}", form_, number_, reason));
  }

  bool done() const { return rest_.empty(); }

  std::string_view word(std::string_view what) {
    if (done()) refuse(fmt::format("ends before {}", what));
    const size_t end = std::min(rest_.find_first_of(between_), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    skip_blank();
    return word;
  }

  void expect(std::string_view keyword) {
    const auto found = word(fmt::format("'{}'", keyword));
    if (found != keyword) refuse(fmt::format("'{}' instead of '{}'", shown(found), keyword));
  }

  /// Takes `keyword` if it is next.
  bool take(std::string_view keyword) {
    Line ahead = *this;
    if (ahead.done() || ahead.word("") != keyword) return false;
    *this = ahead;
    return true;
  }

  int number(std::string_view what, int low = 0, int high = kLargestNumber) {
    std::string_view text = word(what);
    const int value = number_in(text, what, low, high);
    if (!text.empty()) refuse(fmt::format("'{}' after the {}", shown(text), what));
    return value;
  }

  /// Takes a number off the front of `text`, which is part of a word.
  int number_in(std::string_view& text, std::string_view what, int low = 0, int high = kLargestNumber) const {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument) refuse(fmt::format("'{}' is no {}", shown(text), what));
    const auto digits = text.substr(0, static_cast<size_t>(end - text.data()));
    if (error != std::errc{} || value < low || value > high) {
      refuse(fmt::format("{} {} is not between {} and {}", what, shown(digits), low, high));
    }
    text.remove_prefix(digits.size());
    return value;
  }

  /// Takes `mark` off the front of `text`.
  void mark_in(std::string_view& text, std::string_view mark, std::string_view what) const {
    if (text.substr(0, mark.size()) != mark) {
      refuse(fmt::format("'{}' instead of '{}' in the {}", shown(text), mark, what));
    }
    text.remove_prefix(mark.size());
  }

  template <typename Enumeration>
  Enumeration one_of(std::string_view what) {
    const auto found = word(what);
    if (const auto value = named<Enumeration>(found)) return *value;
    refuse(fmt::format("{} '{}' is unknown; hint: one of {}", what, shown(found), names_of<Enumeration>()));
  }

  void expect_end() const {
    if (!done()) refuse(fmt::format("'{}' after the end", shown(rest_)));
  }

 private:
  void skip_blank() { rest_.remove_prefix(std::min(rest_.find_first_not_of(between_), rest_.size())); }

  std::string_view form_;
  std::string_view rest_;
  int64_t number_;
  std::string_view between_;
};

}  // namespace lockstep::plan
