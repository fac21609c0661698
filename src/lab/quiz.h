#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/course.h"

namespace lockstep::lab {

struct Answer {
  std::string text;
  bool is_right = false;
  std::string why;
};

/// A question as it is asked: numbers drawn, answers shuffled.
struct Question {
  std::string text;
  std::vector<Answer> answers;
};

/// The questions of a lesson's quiz.json, with numbers and orders drawn from the seed. Each has one right
/// answer and no two that read alike. Throws Error by file for a quiz that is wrong.
std::vector<Question> make_quiz(const Lesson& lesson, uint64_t seed);

/// How many of a lesson's questions have numbers that are drawn.
int drawn_questions(const Lesson& lesson);

}  // namespace lockstep::lab
