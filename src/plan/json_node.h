#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/error.h"
#include "plan/names.h"
#include "plan/shown.h"

namespace lockstep::plan {

using Json = nlohmann::json;

/// Throws UsageError with `form` and the line for text that is not JSON.
inline Json parse_json(std::string_view form, std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    throw UsageError(fmt::format("{} line {}: not valid JSON from here on", form,
                                 1 + std::count(text.begin(), end, '\n')));
  }
}

/// A JSON value and where it stands.
class Node {
 public:
  /// `form` is what refusals call the document.
  Node(std::string_view form, const Json& value, std::string path)
      : form_(form), value_(value), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& reason) const {
    throw UsageError(fmt::format("{} {}: {}", form_, path_.empty() ? "/" : path_, reason));
  }

  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }

  Node at(const char* key) const {
    if (!value_.is_object()) refuse("is no object");
    const auto found = value_.find(key);
    if (found == value_.end()) refuse(fmt::format("'{}' is missing", key));
    return {form_, *found, fmt::format("{}/{}", path_, key)};
  }

  Node at(size_t index) const { return {form_, value_[index], fmt::format("{}/{}", path_, index)}; }

  size_t size() const {
    if (!value_.is_array()) refuse("is no array");
    return value_.size();
  }

  int number(int low = 0, int high = kLargestNumber) const {
    if (!value_.is_number_integer()) refuse("is no whole number");
    // Unsigned numbers beyond the signed range would turn negative.
    const bool huge = value_.is_number_unsigned() && value_.get<uint64_t>() > uint64_t{kLargestNumber};
    const int64_t value = huge ? 0 : value_.get<int64_t>();
    if (huge || value < low || value > high) {
      refuse(fmt::format("{} is not between {} and {}", value_.dump(), low, high));
    }
    return static_cast<int>(value);
  }

  const std::string& text() const {
    if (!value_.is_string()) refuse("is no text");
    return value_.get_ref<const std::string&>();
  }

  template <typename Enumeration>
  Enumeration one_of() const {
    if (const auto value = named<Enumeration>(text())) return *value;
    refuse(fmt::format("'{}' is unknown; hint: one of {}", shown(text()), names_of<Enumeration>()));
  }

 private:
  std::string_view form_;
  const Json& value_;
  std::string path_;
};

}  // namespace lockstep::plan
