#include "launch/hostlist.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launch/number.h"
#include "launch/printable.h"
#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

// Nine digits, so that the ends of a range and their difference fit an int.
constexpr int kMaxNumber = 999'999'999;
constexpr int kMaxTasks = 1 << 24;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_' || c == '.';
}

struct Text {
  std::string_view origin;
  std::string_view text;
  std::string_view example;
};

// Reads a text from left to right; every refusal says where.
class Cursor {
 public:
  explicit Cursor(Text text) : text_(text) {}

  bool at_end() const { return position_ == text_.text.size(); }
  bool at(char c) const { return !at_end() && text_.text[position_] == c; }

  bool take(char c) {
    if (!at(c)) return false;
    ++position_;
    return true;
  }

  template <typename Predicate>
  std::string_view take_while(Predicate predicate) {
    const std::size_t begin = position_;
    while (!at_end() && predicate(text_.text[position_])) ++position_;
    return text_.text.substr(begin, position_ - begin);
  }

  // A number of digits as they stand; value() of it is in [low, high].
  std::string_view take_digits(int low, int high) {
    const std::size_t begin = position_;
    const std::string_view digits = take_while(is_digit);
    if (digits.empty()) fail_at(begin, "a number is expected");
    if (digits.size() > kMaxHostLength) fail_at(begin, "the number is too long");
    try {
      parse_number("number", digits, low, high);
    } catch (const UsageError&) {
      fail_at(begin, fmt::format("a number between {} and {} is expected", low, high));
    }
    return digits;
  }

  [[noreturn]] void fail(std::string_view expected) const { fail_at(position_, expected); }

  [[noreturn]] void fail_at(std::size_t position, std::string_view expected) const {
    const std::string_view rest = text_.text.substr(position);
    const std::string found = rest.empty() ? "the end" : fmt::format("'{}'", printable(rest, 16));
    throw UsageError(
        fmt::format("{}: '{}' cannot be read: at position {} {}, found {}; hint: it reads like {}",
                    text_.origin, printable(text_.text), position + 1, expected, found, text_.example));
  }

  std::size_t position() const { return position_; }

 private:
  Text text_;
  std::size_t position_ = 0;
};

int value(std::string_view digits) {
  return parse_number("number", digits, 0, kMaxNumber);
}

// Appends the numbers of one element of a bracket, "7" or "08-10".
void expand_range(Cursor& cursor, std::vector<std::string>& numbers) {
  const std::size_t begin = cursor.position();
  const std::string_view low = cursor.take_digits(0, kMaxNumber);
  std::string_view high = low;
  if (cursor.take('-')) {
    const std::size_t begin_high = cursor.position();
    high = cursor.take_digits(0, kMaxNumber);
    // [1-03] could mean 1 2 3 or 01 02 03; SLURM writes neither.
    if (high.front() == '0' && high.size() != low.size()) {
      cursor.fail_at(begin_high, "a number as wide as the range's first is expected");
    }
    if (value(high) < value(low))
      cursor.fail_at(begin_high, fmt::format("a number from {} on is expected", low));
  }
  const auto count = static_cast<std::size_t>(value(high) - value(low)) + 1;
  if (count > kMaxHosts - numbers.size()) {
    cursor.fail_at(begin, fmt::format("at most {} hosts are expected", kMaxHosts));
  }
  for (int number = value(low), last = value(high); number <= last; ++number) {
    numbers.push_back(fmt::format("{:0{}}", number, low.size()));
  }
}

std::vector<std::string> expand_bracket(Cursor& cursor) {
  std::vector<std::string> numbers;
  do {
    expand_range(cursor, numbers);
  } while (cursor.take(','));
  if (!cursor.take(']')) cursor.fail("',', '-' or ']' is expected");
  return numbers;
}

// Every name followed by every choice, the choices turning fastest.
std::vector<std::string> product(std::vector<std::string> names, const std::vector<std::string>& choices) {
  if (choices.size() == 1) {
    for (std::string& name : names) name += choices.front();
    return names;
  }
  std::vector<std::string> longer;
  longer.reserve(names.size() * choices.size());
  for (const std::string& name : names) {
    for (const std::string& choice : choices) longer.push_back(name + choice);
  }
  return longer;
}

// Reads one element of the list, such as "a[01-02]b[3-4]", into at most `room` names.
std::vector<std::string> expand_element(Cursor& cursor, std::size_t room) {
  const std::size_t begin = cursor.position();
  std::vector<std::string> names{""};
  while (true) {
    std::vector<std::string> choices;
    if (cursor.take('[')) {
      choices = expand_bracket(cursor);
    } else {
      const std::string_view literal = cursor.take_while(is_name_character);
      if (literal.empty()) break;
      choices.emplace_back(literal);
    }
    if (names.size() * choices.size() > room) {
      cursor.fail_at(begin, fmt::format("at most {} hosts are expected", kMaxHosts));
    }
    const auto longest = [](const auto& texts) {
      return std::ranges::max(texts, {}, &std::string::size).size();
    };
    if (longest(names) + longest(choices) > kMaxHostLength) {
      cursor.fail_at(begin, fmt::format("names of at most {} characters are expected", kMaxHostLength));
    }
    names = product(std::move(names), choices);
  }
  if (cursor.position() == begin) cursor.fail("a host name is expected");
  return names;
}

}  // namespace

bool may_be_host(std::string_view text) {
  return !text.empty() && text.size() <= kMaxHostLength &&
         std::ranges::none_of(text, [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '/'; });
}

std::vector<std::string> expand_hostlist(std::string_view text, std::string_view origin) {
  Cursor cursor({.origin = origin, .text = text, .example = "tux[1-3,07],login"});
  std::vector<std::string> hosts;
  do {
    std::vector<std::string> names = expand_element(cursor, kMaxHosts - hosts.size());
    std::ranges::move(names, std::back_inserter(hosts));
  } while (cursor.take(','));
  if (!cursor.at_end()) cursor.fail("',', '[' or a letter, digit, '-', '_' or '.' is expected");
  return hosts;
}

std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view origin) {
  Cursor cursor({.origin = origin, .text = text, .example = "2(x3),1"});
  std::vector<int> tasks;
  do {
    const std::size_t begin = cursor.position();
    const int count = value(cursor.take_digits(1, kMaxTasks));
    std::size_t nodes = 1;
    if (cursor.take('(')) {
      if (!cursor.take('x')) cursor.fail("'x' is expected");
      nodes = static_cast<std::size_t>(value(cursor.take_digits(1, kMaxNumber)));
      if (!cursor.take(')')) cursor.fail("')' is expected");
    }
    if (nodes > kMaxHosts - tasks.size())
      cursor.fail_at(begin, fmt::format("at most {} nodes are expected", kMaxHosts));
    tasks.insert(tasks.end(), nodes, count);
  } while (cursor.take(','));
  if (!cursor.at_end()) cursor.fail("',' or '(' is expected");
  return tasks;
}

}  // namespace lockstep::launch
