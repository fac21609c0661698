#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/desk.h"

namespace lockstep::lab {

/// Everything that the page of a lesson's run shows: the lesson, the trace, what the check said of it, and
/// the plan beside it, or null. Throws Error with the name of the file for a trace that is no trace;
/// UsageError if there is none yet.
nlohmann::json view_data(const Desk& desk, const Lesson& lesson);

/// The page, one file that needs no other: labs/view/page.html of the course's tree with its style, its
/// script and `data` in place.
std::string view_page(const Course& course, const nlohmann::json& data);

/// Where the page goes unless another file is asked for: my_work/views/NN_name.html.
std::filesystem::path view_file(const Desk& desk, const Lesson& lesson);

/// Writes the page. Throws UsageError if `file` is there and is not such a page: nobody's work is
/// overwritten.
void write_view(const std::filesystem::path& file, const std::string& page);

}  // namespace lockstep::lab
