#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/course.h"

namespace lockstep::lab {

/// What a check is asked to do.
struct CheckRequest {
  uint64_t seed = 0;  ///< Of the inputs that the check draws; 0: another one every time.
  int world = 0;      ///< 0: every world that the check has.
  bool mine = false;  ///< On the learner's own code of earlier lessons.
};

/// What became of a learner's file.
struct Verdict {
  enum class Kind : uint8_t {
    kPassed,
    kRefused,   ///< The check found something: `name`, `what`, `meaning`.
    kNotBuilt,  ///< The compiler's words are in `output`.
    kDied,      ///< Crashed, called exit, or went on for too long: `name` and `what` tell.
  };
  Kind kind = Kind::kNotBuilt;
  std::string name;
  std::string what;
  std::string meaning;
  std::string replay;               ///< The command that shows the same failure again; "" if any does.
  std::vector<std::string> proved;  ///< What held, a sentence each.
  std::vector<std::string> notes;   ///< Numbers worth seeing.
  std::string output;               ///< What the learner's code printed, or the compiler.
  std::string warnings;             ///< The compiler's, of code that it accepted.
  uint64_t seed = 0;                ///< Of the inputs that the check drew.
  std::string trace;                ///< The run to look at, as JSON; "" if no rank did anything.
  double build_s = 0;
  double check_s = 0;

  bool passed() const { return kind == Kind::kPassed; }
};

/// Builds what checks need and is not there yet (the first time, minutes with LibTorch). `say` gets what is
/// built, and every ten seconds how far it is. Returns early, with nothing built, once `stopped`.
void build_host(const Course& course, const Lesson& lesson, void (*say)(const std::string& text),
                bool (*stopped)());

/// Compiles the learner's file and checks it, contained: whatever the code does, this returns within a
/// minute, and no process of it is left. The files of the earlier lessons come from `work` as well.
Verdict check_file(const Course& course, const Lesson& lesson, const std::filesystem::path& work,
                   const CheckRequest& request);

}  // namespace lockstep::lab
