#include "lab/checker.h"

#include <map>

namespace lab {

namespace {

/// Unwinds a check that has failed.
struct CheckFailed {};

/// What the world's own problems usually mean.
const std::map<std::string, std::string>& meanings() {
  static const std::map<std::string, std::string> all = {
      {"deadlock",
       "Every rank waits for another one, so nobody can go on. A send may wait until its message is "
       "received: start it with isend, "
       "receive, then wait for it; or let some ranks receive first."},
      {"exception", "Your code, or something that it called, threw an exception that nobody caught."},
      {"wrong size", "The two ends of a message must agree on its length. Do both compute the same chunk?"},
      {"wrong rank",
       "Ranks are numbered from 0 to world_size - 1: wrap around with the remainder, also below 0."},
      {"wrong stream",
       "What start() is given runs on the communication stream, beside the rank's own code, and talks by the "
       "Rank that it is called with: [...](lab::Rank& stream) { ... stream ... }."},
      {"buffer changed",
       "After isend the data still belongs to the message. Call wait() before you write there, or write "
       "elsewhere."},
      {"never waited",
       "isend, irecv and start only begin something. Keep the Work that they return and call wait() on it."},
      {"never received",
       "Every message that is sent must be asked for. Which rank should have received this one?"},
      {"endless", "Look at the condition of your loops: which of them never becomes false?"},
  };
  return all;
}

/// What a problem usually means, as far as its words tell.
std::string meaning_of(const Report& report) {
  if (report.problem == "deadlock" && report.what.find("in send") == std::string::npos &&
      report.what.find("in recv") != std::string::npos)
    return "Whoever is in recv waits for a message that nobody is going to send. Which rank should have sent "
           "it? It is done already, or waits for somebody itself.";
  if (report.problem == "wrong rank" && report.what.ends_with("itself"))
    return "A rank has its own data: it copies them, and sends nothing. In a world of one rank there is "
           "nobody "
           "to talk to, and every loop over steps or peers must be empty.";
  return meanings().at(report.problem);
}

}  // namespace

std::vector<int> Checker::worlds(std::vector<int> all) const {
  return options_.world > 0 ? std::vector<int>{options_.world} : std::move(all);
}

uint64_t Checker::draw(uint64_t salt) const {
  uint64_t x = options_.seed * 0x9e3779b97f4a7c15ULL + salt + 1;  // SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

Report Checker::run(WorldOptions options, const std::function<void(Rank&)>& body) {
  in_world(options.world);
  options.seed = options_.seed;
  Report report = run_world(options, body);
  expect_no_problem(report);
  if (result_.shown_world == 0 && !report.events.empty()) last_run_ = report;
  return report;
}

void Checker::expect_no_problem(const Report& report) {
  if (report.problem.empty()) return;
  if (!report.events.empty()) show(report);
  fail(report.problem, (part_.empty() ? "" : part_ + ": ") + report.what, meaning_of(report));
}

void Checker::in_world(int world) {
  world_ = world;
}

void Checker::in_part(const std::string& name) {
  part_ = name;
}

void Checker::expect(bool holds, const std::string& name, const std::string& what,
                     const std::string& meaning) {
  if (!holds) fail(name, what, meaning);
}

void Checker::fail(const std::string& name, const std::string& what, const std::string& meaning) {
  result_.has_failed = true;
  result_.failure = {name, what, meaning, world_, options_.seed};
  if (result_.shown_world == 0 && !last_run_.events.empty()) show(std::move(last_run_));
  throw CheckFailed{};
}

void Checker::proved(const std::string& sentence) {
  result_.proved.push_back(sentence);
}
void Checker::note(const std::string& text) {
  result_.notes.push_back(text);
}

void Checker::show(Report report) {
  result_.shown_world = static_cast<int>(report.bytes.size());
  result_.shown = std::move(report);
}

CheckResult run_check(const std::function<void(Checker&)>& check, const CheckOptions& options) {
  Checker checker(options);
  try {
    check(checker);
  } catch (const CheckFailed&) {
  } catch (const std::exception& error) {
    checker.result().has_failed = true;
    checker.result().failure = {"exception", "your code threw: " + first_words(error),
                                meanings().at("exception"), 0, options.seed};
  }
  return checker.result();
}

}  // namespace lab
