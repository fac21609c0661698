#pragma once

#include <string>

#include "lab/screen.h"

namespace lockstep::lab {

/// A page of the course, written in Markdown, as a terminal shows it: headings strong, code as it is,
/// paragraphs, tables and commands broken to the width, `<details>` as the question alone unless `answers`.
std::string page_text(const std::string& markdown, const Style& style, bool answers);

}  // namespace lockstep::lab
