#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::trace {

/// `text` as JSON writes it; what is no UTF-8 becomes U+FFFD.
inline std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep::trace
