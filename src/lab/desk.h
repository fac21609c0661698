#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/course.h"
#include "lab/state.h"

namespace lockstep::lab {

/// Where a learner works: the course, the folder `my_work` below the current one, and how far they are.
struct Desk {
  Course course;
  std::filesystem::path work;
  State state;

  /// The lesson that a word of the command line names, or the current one for none. Throws UsageError for a
  /// word that is no number of a lesson, and for none before the first start.
  const Lesson& lesson(const std::string& word) const;
  /// The current one; the first that is not done if there is none yet; null when all are done.
  const Lesson* current() const;
  std::filesystem::path file(const Lesson& lesson) const { return work / lesson.file; }
  void save() const;
};

Desk open_desk();

/// Puts the starter into my_work and makes the lesson the current one. A file that is there already stays;
/// returns whether it was made.
bool start_lesson(Desk& desk, const Lesson& lesson);

/// Puts the starter in the place of the learner's file, which is kept beside it under the returned name.
std::filesystem::path reset_lesson(Desk& desk, const Lesson& lesson);

/// Where the trace of a lesson's last check lies, for `lockstep lab view`.
std::filesystem::path trace_file(const Desk& desk, const Lesson& lesson);
void keep_trace(const Desk& desk, const Lesson& lesson, const std::string& json);

/// The hints of a lesson: the parts of hints.md that its lines `## ...` head, three of them, each without its
/// heading.
std::vector<std::string> hints_of(const Lesson& lesson);

}  // namespace lockstep::lab
