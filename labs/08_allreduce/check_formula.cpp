#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "08_allreduce/cases.h"
#include "lab/collectives.h"

namespace lab::naive {

namespace {

/// What the formula is asked, with P - 1 as `others`: every candidate below is a function of it.
struct Question {
  int world = 1;
  int64_t bytes = 0;
  double alpha = 0, beta = 0;

  double others() const { return world - 1; }
  double message() const { return alpha + S() * beta; }
  double S() const { return static_cast<double>(bytes); }
  double rounds() const { return std::bit_width(static_cast<unsigned>(world - 1)); }
};

double right_answer(const Question& q) {
  return 2 * q.others() * q.message();
}

/// A formula that is wrong, and what whoever wrote it has in mind.
struct Candidate {
  const char* name;
  double (*formula)(const Question& q);
  const char* meaning;
};

constexpr const char* kOnePort =
    "You do not count all bytes: each of the 2(P - 1) messages is the whole buffer, and all of them pass the "
    "port of "
    "rank 0, one after the other.";
constexpr const char* kOneLatency =
    "You do not count the latency of all messages: each of the 2(P - 1) costs alpha.";
constexpr const char* kRootToo = "Rank 0 sends nothing to itself: P - 1 messages each way.";

constexpr Candidate kCandidates[] = {
    {"way back forgotten", [](const Question& q) { return q.others() * q.message(); },
     "That is half of it: the buffers' way to rank 0. The sum has to come back."},
    {"formula of a ring",
     [](const Question& q) { return 2 * q.others() * (q.alpha + q.S() / q.world * q.beta); },
     "S / P bytes in a message is what a ring sends. Here every message is the whole buffer, and all of them "
     "pass the "
     "port of rank 0."},
    {"formula of a tree", [](const Question& q) { return 2 * q.rounds() * q.message(); },
     "That is a reduce and a broadcast along a tree. Here all messages pass the port of rank 0."},
    {"formula of all to all", [](const Question& q) { return q.world * q.others() * q.message(); },
     "P(P - 1) messages is everybody to everybody. Through rank 0 there are 2(P - 1)."},
    {"latency forgotten", [](const Question& q) { return 2 * q.others() * q.S() * q.beta; },
     "Every message costs alpha, however short it is."},
    {"bytes forgotten", [](const Question& q) { return 2 * q.others() * q.alpha; },
     "A message of n bytes takes alpha + n beta."},
    {"alpha and beta exchanged",
     [](const Question& q) { return 2 * q.others() * (q.beta + q.S() * q.alpha); },
     "alpha is for each message, beta for each byte."},
    {"floats, not bytes", [](const Question& q) { return 2 * q.others() * (q.alpha + q.S() / 4 * q.beta); },
     "bytes is the size in bytes already, and beta is for a byte."},
    {"floats, not bytes", [](const Question& q) { return 2 * q.others() * (q.alpha + q.S() * 4 * q.beta); },
     "bytes is the size in bytes already, and beta is for a byte."},
    {"one port forgotten", [](const Question& q) { return 2 * q.message(); },
     "The messages to rank 0 do not arrive at the same time: its port takes one after the other, P - 1 of "
     "them, and "
     "sends one after the other."},
    {"one port forgotten", [](const Question& q) { return 2 * q.others() * q.alpha + q.S() * q.beta; },
     kOnePort},
    {"one port forgotten", [](const Question& q) { return 2 * q.others() * q.alpha + 2 * q.S() * q.beta; },
     kOnePort},
    {"one port forgotten", [](const Question& q) { return q.others() * q.message() + q.message(); },
     "One of the two ways is counted as a single message. P - 1 messages come in, and P - 1 go out."},
    {"one latency alone", [](const Question& q) { return q.alpha + 2 * q.others() * q.S() * q.beta; },
     kOneLatency},
    {"one latency alone", [](const Question& q) { return 2 * q.alpha + 2 * q.others() * q.S() * q.beta; },
     kOneLatency},
    {"root counted too", [](const Question& q) { return 2 * q.world * q.message(); }, kRootToo},
    {"root counted too", [](const Question& q) { return (2 * q.world - 1) * q.message(); }, kRootToo},
    {"nothing computed", [](const Question&) { return 0.0; }, "Write naive_all_reduce_us."},
};

bool same(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

/// Networks and sizes that text and check show, and others, up to terabytes, that no run could try.
std::vector<Question> questions(const Checker& checker) {
  std::vector<Question> all;
  uint64_t salt = 5000;
  const auto draw = [&](int64_t low, int64_t high) { return checker.draw_between(++salt, low, high); };
  for (const int world :
       {3, 4, 5, 6, 7, 8, 2, 1, static_cast<int>(draw(9, 99)), static_cast<int>(draw(100, 9999))}) {
    for (const int64_t bytes :
         {int64_t{1024}, int64_t{0}, 1 + 2 * draw(0, 99'999), draw(int64_t{3} << 30, int64_t{1} << 42)}) {
      all.push_back({world, bytes, 5, 0.01});
      all.push_back(
          {world, bytes, static_cast<double>(draw(1, 999)) / 8, static_cast<double>(draw(1, 999)) / 1e5});
      all.push_back(
          {world, bytes, static_cast<double>(draw(1, 99)) / 64, static_cast<double>(draw(1, 99)) / 32});
    }
  }
  return all;
}

/// Why these answers are wrong, the first of them at `at`.
Failure failure_of(const std::vector<Question>& asked, const std::vector<double>& answers, size_t at) {
  const auto& q = asked[at];
  const auto what = fmt::format(
      "{}, {}, alpha {:.6g} us, beta {:.6g} us/byte: naive_all_reduce_us is {:.6g} us, the messages take "
      "{:.6g} us",
      counted(q.world, "rank"), counted(q.bytes, "byte"), q.alpha, q.beta, answers[at], right_answer(q));
  for (const auto& candidate : kCandidates) {
    bool fits = true;
    for (size_t i = 0; i < asked.size() && fits; ++i)
      fits = asked[i].world == 1 || same(answers[i], candidate.formula(asked[i]));
    if (fits) return {candidate.name, what, candidate.meaning};
  }
  const auto is_right_but_for = [&](auto is_special) {
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!is_special(asked[i]) && !same(answers[i], right_answer(asked[i]))) return false;
    }
    return true;
  };
  if (is_right_but_for([](const Question& one) { return one.world == 1; }))
    return {"one rank alone", what, "One rank has nobody to send to: with P = 1 the time is 0."};
  if (is_right_but_for([](const Question& one) { return one.bytes == 0; }))
    return {"empty buffers", what, "A message without bytes takes alpha all the same."};
  if (is_right_but_for([](const Question& one) { return one.bytes > std::numeric_limits<int>::max(); })) {
    return {"overflow above 2 GiB", what,
            "All answers below 2 GiB are right. An int ends at 2^31 - 1: compute in double, "
            "static_cast<double>(bytes)."};
  }
  return {"wrong formula", what,
          "Count the messages that pass the port of rank 0, one after the other, and multiply by what one of "
          "them "
          "takes."};
}

/// The learner's formula beside the clock of the learner's function.
void note_clock(const Seam& seam, Checker& checker) {
  for (const int world : checker.worlds({3, 4, 5, 8})) {
    const auto [clock_us, formula_us] = checker.in_child([&] {
      forbid_collectives();
      std::vector<std::vector<float>> data(index(world), std::vector<float>(256, 1));
      const auto report =
          checker.run({.world = world, .latency_us = 5, .us_per_byte = 0.01, .keep_events = false},
                      [&](Rank& rank) { seam.naive_all_reduce(rank, data[index(rank.rank())]); });
      return std::pair(report.time_us, seam.naive_all_reduce_us(world, 1024, 5, 0.01));
    });
    checker.note(
        fmt::format("{}, 1 KiB, alpha 5 us, beta 0.01 us/byte: clock {:.2f} us, your formula {:.2f} us",
                    counted(world, "rank"), clock_us, formula_us));
  }
}

}  // namespace

void check_formula(const Seam& seam, Checker& checker) {
  checker.in_part("naive_all_reduce_us");
  checker.in_world(0);
  const auto asked = questions(checker);
  const auto answers = checker.in_child([&] {
    std::vector<double> all;
    for (const auto& q : asked) all.push_back(seam.naive_all_reduce_us(q.world, q.bytes, q.alpha, q.beta));
    return all;
  });
  for (size_t i = 0; i < asked.size(); ++i) {
    if (same(answers[i], right_answer(asked[i]))) continue;
    const auto failure = failure_of(asked, answers, i);
    checker.fail(failure.name, failure.what, failure.meaning);
  }
  note_clock(seam, checker);
  checker.proved(
      "your formula is what the virtual clock says, also for worlds, networks and terabytes never run");
}

}  // namespace lab::naive
