#pragma once

#include <string>

#include "lab/screen.h"

namespace lockstep::lab {

/// A page of the course, written in Markdown, as a terminal shows it: headings strong, code as it is,
/// paragraphs, tables and commands broken to the width, `<details>` as the question alone unless `answers`.
std::string page_text(const std::string& markdown, const Style& style, bool answers);

/// One hint more than the last time, after those shown before; that it was shown is kept.
std::string one_more_hint(Desk& desk, const Lesson& lesson, const Style& style);

}  // namespace lockstep::lab
