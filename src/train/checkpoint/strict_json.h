#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep::train {

inline constexpr size_t kMostJsonBytes = size_t{64} << 20;

/// A text from outside as an error may show it: JSON in ASCII, at most 60 characters.
std::string shown_text(std::string_view text);
/// The same for any value.
std::string shown_json(const nlohmann::json& value);

/// `text` as a JSON document, with what JSON leaves open decided: an object at the top, no key twice, nothing
/// nested deeper than 16, no zero byte, at most kMostJsonBytes. Throws Error that starts with `origin`.
nlohmann::json parse_strict(std::string_view text, const std::string& origin);

}  // namespace lockstep::train
