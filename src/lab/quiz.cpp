#include "lab/quiz.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "lab/expression.h"
#include "lockstep/error.h"

namespace lockstep::lab {

namespace {

using Letters = std::map<std::string, double>;

nlohmann::json questions_of(const Lesson& lesson) {
  return nlohmann::json::parse(read_text(lesson.folder / "quiz.json")).at("questions");
}

/// The text with every {P} replaced by the number that was drawn for P.
std::string filled(std::string text, const Letters& letters) {
  for (const auto& [name, value] : letters) {
    const auto place = "{" + name + "}";
    for (size_t at = 0; (at = text.find(place, at)) != std::string::npos;)
      text.replace(at, place.size(), number_text(value));
  }
  return text;
}

Answer make_answer(const nlohmann::json& json, const Letters& letters) {
  auto text = json.contains("value") ? number_text(evaluate(json.at("value").get<std::string>(), letters))
                                     : filled(json.at("text").get<std::string>(), letters);
  if (json.contains("unit")) text += " " + json.at("unit").get<std::string>();
  return {std::move(text), json.at("right").get<bool>(), filled(json.at("why").get<std::string>(), letters)};
}

Question make_question(const nlohmann::json& json, std::mt19937_64& random) {
  Letters letters;
  const auto drawn = json.value("draw", nlohmann::json::object());
  for (const auto& [name, values] : drawn.items())
    letters[name] = values.at(random() % values.size()).get<double>();
  Question question{filled(json.at("question").get<std::string>(), letters), {}};
  for (const auto& answer : json.at("answers")) question.answers.push_back(make_answer(answer, letters));
  std::ranges::shuffle(question.answers, random);
  return question;
}

void check(const Question& question) {
  std::set<std::string> texts;
  for (const auto& answer : question.answers) {
    if (!texts.insert(answer.text).second)
      throw Error(fmt::format("'{}': two answers read '{}'", question.text, answer.text));
    if (answer.why.empty()) throw Error(fmt::format("'{}': '{}' has no reason", question.text, answer.text));
  }
  const auto right = std::ranges::count_if(question.answers, &Answer::is_right);
  if (right != 1 || question.answers.size() < 2)
    throw Error(
        fmt::format("'{}': {} of {} answers are right", question.text, right, question.answers.size()));
}

}  // namespace

std::vector<Question> make_quiz(const Lesson& lesson, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Question> questions;
  try {
    for (const auto& json : questions_of(lesson)) {
      questions.push_back(make_question(json, random));
      check(questions.back());
    }
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}", (lesson.folder / "quiz.json").string(), error.what()));
  }
  return questions;
}

int drawn_questions(const Lesson& lesson) {
  return static_cast<int>(
      std::ranges::count_if(questions_of(lesson), [](const auto& json) { return json.contains("draw"); }));
}

}  // namespace lockstep::lab
