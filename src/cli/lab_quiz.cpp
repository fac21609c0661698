#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <random>
#include <sstream>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/lab_options.h"
#include "lab/desk.h"
#include "lab/quiz.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

constexpr int64_t kMostSeed = 1'000'000'000;

struct QuizOptions : LabOptions {
  int64_t seed = 0;
  std::string answers;
};

/// `2,1,3` as numbers of answers.
std::vector<size_t> given_answers(const std::string& text, const std::vector<lab::Question>& questions) {
  std::istringstream stream(text);
  std::vector<size_t> given;
  for (std::string word; std::getline(stream, word, ',');) {
    const size_t most = given.size() < questions.size() ? questions[given.size()].answers.size() : 0;
    if (word.size() != 1 || word[0] < '1' || word[0] > static_cast<char>('0' + most))
      throw UsageError(fmt::format(
          "--answers {}: '{}' is no answer to question {}; hint: one number for each of the {} questions",
          text, word, given.size() + 1, questions.size()));
    given.push_back(static_cast<size_t>(word[0] - '1'));
  }
  if (!given.empty() && given.size() < questions.size())
    throw UsageError(
        fmt::format("--answers {}: question {} has none; hint: one number for each of the {} "
                    "questions",
                    text, given.size() + 1, questions.size()));
  return given;
}

void print_question(size_t number, const lab::Question& question, const lab::Style& style) {
  fmt::print("\n{}\n",
             style.strong(lab::wrapped(fmt::format("{}. {}", number, question.text), style.columns, 3)));
  for (size_t k = 0; k < question.answers.size(); ++k)
    fmt::print("   {}  {}\n", k + 1, lab::wrapped(question.answers[k].text, style.columns - 6, 6));
}

/// The number typed; asked again until it is one.
size_t read_answer(size_t most) {
  while (true) {
    fmt::print("   your answer: ");
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) throw UsageError("the quiz ended before its last question");
    if (line.size() == 1 && line[0] >= '1' && line[0] <= static_cast<char>('0' + most))
      return static_cast<size_t>(line[0] - '1');
  }
}

bool judge(const lab::Question& question, size_t chosen, const lab::Style& style) {
  const auto& answer = question.answers[chosen];
  fmt::print("   {} {}\n", answer.is_right ? style.good("right.") : style.bad("no."),
             lab::wrapped(answer.why, style.columns - 10, 6));
  if (answer.is_right) return true;
  for (const auto& other : question.answers) {
    if (other.is_right) {
      fmt::print("   {} {}\n", style.dim("the answer:"),
                 lab::wrapped(fmt::format("{}. {}", other.text, other.why), style.columns - 15, 6));
    }
  }
  return false;
}

int quiz(const QuizOptions& options) {
  const auto desk = lab::open_desk();
  const auto& lesson = desk.lesson(options.lesson);
  const auto style = lab_style(options);
  const auto seed = options.seed > 0 ? static_cast<uint64_t>(options.seed)
                                     : uint64_t{1} + std::random_device()() % kMostSeed;
  const auto questions = lab::make_quiz(lesson, seed);
  const auto given = given_answers(options.answers, questions);
  const bool asks = options.answers.empty() && can_ask(options);
  fmt::print("{}\n", style.strong(fmt::format("Quiz of lesson {}: {}", lesson.number, lesson.title)));
  size_t answered = 0, right = 0;
  for (size_t k = 0; k < questions.size(); ++k) {
    print_question(k + 1, questions[k], style);
    if (!asks && k >= given.size()) continue;
    ++answered;
    right += judge(questions[k], asks ? read_answer(questions[k].answers.size()) : given[k], style) ? 1 : 0;
  }
  if (answered == 0) {
    fmt::print("\nanswer them: lockstep lab quiz {} --seed {} --answers 1,2,...\n", lesson.number, seed);
    return 0;
  }
  fmt::print("\n{} of {} right\n", right, questions.size());
  return right == questions.size() ? 0 : 1;
}

}  // namespace

Action define_lab_quiz(Flags flags) {
  const auto options = std::make_shared<QuizOptions>();
  add_lesson(flags, *options, "The lesson's number (default: the current one)");
  flags.number("--seed", options->seed, 0, kMostSeed,
               "What is drawn: numbers, and the order of answers (0: another every time)");
  flags.text("--answers", options->answers, "Answer all questions at once, as numbers", "N,N,...");
  return [options](const Invocation&) { return quiz(*options); };
}

}  // namespace lockstep::cli
