#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep::train {

/// Puts a file in the place of another, or of none: whole or not at all, also if power fails. Throws Error.
void replace_file(const std::filesystem::path& file, std::string_view text);

}  // namespace lockstep::train
