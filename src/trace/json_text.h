#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::trace {

/// `text` as JSON writes it; what is no UTF-8 becomes U+FFFD.
inline std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A value from outside as an error may show it: JSON in ASCII, at most 60 characters.
inline std::string shown(const nlohmann::json& value) {
  constexpr size_t kMost = 60;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace lockstep::trace
