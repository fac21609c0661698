#include "cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <system_error>

#include "cli/flags.h"
#include "cli/nearest.h"
#include "cli/version.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

using Words = std::vector<std::string>;

struct ParsedVerb {
  FlagParser parser;
  Action action;
};

/// A line for each verb that has `verb` before its own word, such as `lab list` for `lab`.
std::string verbs_behind(const Verb& verb) {
  std::string text;
  for (const Verb& other : verbs()) {
    if (!other.group.empty() && other.name.starts_with(std::string(verb.name) + " "))
      text += fmt::format("\n  {:<30}  {}", other.name, other.summary);
  }
  return text.empty() ? "" : "\n\nMore, each with a --help of its own:" + text;
}

ParsedVerb define(const Verb& verb) {
  const std::string tail = verb.takes_program ? "[FLAGS] [--] PROGRAM [ARGUMENTS]" : "[FLAGS]";
  FlagParser parser(fmt::format("lockstep {} {}", verb.name, tail), std::string(verb.summary),
                    std::string(verb.example) + verbs_behind(verb));
  Action action = verb.define(parser.flags());
  return {std::move(parser), std::move(action)};
}

[[noreturn]] void refuse(std::string_view where, std::string_view kind, const std::string& word,
                         const Words& candidates) {
  const std::string near = nearest(word, candidates);
  const std::string hint =
      near.empty() ? fmt::format("see {} --help", where) : fmt::format("did you mean {}?", near);
  throw UsageError(fmt::format("{}: unknown {} {}; hint: {}", where, kind, word, hint));
}

std::string usage() {
  std::string text = "Lockstep: distributed training on LibTorch\n\nUsage: lockstep VERB [FLAGS]\n";
  std::string_view group;
  for (const auto& verb : verbs()) {
    if (verb.group.empty()) continue;
    if (verb.group != group) text += fmt::format("\n{}:\n", group = verb.group);
    text += fmt::format("  {:<20} {}\n", verb.name, verb.summary);
  }
  text += "\nlockstep VERB --help shows a verb's flags and an example; lockstep --version shows versions.\n";
  return text;
}

/// The words that can follow `prefix` to make a verb: after "", the first words of all; after "bench", its
/// kinds.
Words words_after(std::string_view prefix) {
  Words found;
  for (const auto& verb : verbs()) {
    if (verb.group.empty()) continue;
    std::string_view rest = verb.name;
    if (!prefix.empty()) {
      if (!rest.starts_with(fmt::format("{} ", prefix))) continue;
      rest.remove_prefix(prefix.size() + 1);
    }
    std::string word(rest.substr(0, rest.find(' ')));
    if (std::find(found.begin(), found.end(), word) == found.end()) found.push_back(std::move(word));
  }
  return found;
}

[[noreturn]] void refuse_verb(const Words& words) {
  const Words kinds = words_after(words[0]);
  if (kinds.empty()) refuse("lockstep", "verb", words[0], words_after(""));
  if (words.size() > 1) refuse(fmt::format("lockstep {}", words[0]), "kind", words[1], kinds);
  throw UsageError(
      fmt::format("lockstep {}: one of these must follow: {}", words[0], fmt::join(kinds, ", ")));
}

/// The value of a flag that needs one, as a word of its own. Another flag there is a value forgotten.
const std::string& value_of(const Verb& verb, const std::string& flag, const std::string& word) {
  if (!word.starts_with("--")) return word;
  throw UsageError(
      fmt::format("lockstep {0}: {1} needs a value; hint: {1}={2} if that is meant", verb.name, flag, word));
}

/// Separates a verb's own words from a program's, and spells flags with dashes (torchrun takes `--node_rank`
/// too).
void sort_words(const Verb& verb, const FlagParser& parser, const Words& words, Words& own, Words& program) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      program.assign(words.begin() + static_cast<long>(i) + 1, words.end());
      return;
    }
    if (!word.starts_with("-") || word == "-") {
      if (verb.takes_program) {
        program.assign(words.begin() + static_cast<long>(i), words.end());
        return;
      }
      own.push_back(word);
      continue;
    }
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
    if (!parser.knows(name)) refuse(fmt::format("lockstep {}", verb.name), "flag", name, parser.names());
    own.push_back(equals == std::string::npos ? name : name + word.substr(equals));
    if (equals != std::string::npos || i + 1 == words.size()) continue;
    const auto after = words.begin() + static_cast<long>(i) + 1;
    if (parser.takes_value(name)) {
      own.push_back(value_of(verb, name, words[++i]));
    } else if (parser.may_take_value(name) && !after->starts_with("-")) {
      // Of `--json plan.json` and `--json ./program` the one with a -- behind it cannot be a program.
      const bool is_value = !verb.takes_program || std::find(after, words.end(), "--") != words.end();
      if (is_value) own.push_back(words[++i]);
    }
  }
}

int run_verb(const Verb& verb, const Words& words) {
  auto [parser, action] = define(verb);
  Invocation invocation{.words = words, .program = {}};
  const long verb_words = 1 + std::count(verb.name.begin(), verb.name.end(), ' ');
  Words own;
  sort_words(verb, parser, Words(words.begin() + verb_words, words.end()), own, invocation.program);
  if (!verb.takes_program) own.insert(own.end(), invocation.program.begin(), invocation.program.end());
  try {
    if (!parser.parse(std::move(own))) {
      fmt::print("{}", parser.help());
      return 0;
    }
  } catch (const UsageError& error) {
    const auto after = words.begin() + verb_words;
    const std::string near = after == words.end() ? "" : nearest(*after, words_after(verb.name));
    const std::string hint = near.empty() ? fmt::format("see lockstep {} --help", verb.name)
                                          : fmt::format("did you mean lockstep {} {}?", verb.name, near);
    throw UsageError(fmt::format("lockstep {}: {}; hint: {}", verb.name, error.what(), hint));
  }
  try {
    return action(invocation);
  } catch (const UsageError& error) {
    const std::string_view text = error.what();
    if (text.starts_with("lockstep ")) throw;
    throw UsageError(fmt::format("lockstep {}: {}", verb.name, text));
  }
}

/// What LibTorch says, without the page of C++ frames that it puts below and that would hide it.
std::string_view without_frames(std::string_view text) {
  return text.substr(0, text.find("\nException raised from "));
}

int dispatch(const Words& words) {
  const auto is_help = [](const std::string& word) {
    return word == "--help" || word == "-h" || word == "help";
  };
  if (words.empty() || is_help(words[0])) {
    fmt::print("{}", usage());
    return 0;
  }
  if (words[0] == "--version") {
    fmt::print("{}", version_text());
    return 0;
  }
  if (const Verb* verb = find_verb(words)) return run_verb(*verb, words);
  const Words kinds = words_after(words[0]);
  if (words.size() == 2 && !kinds.empty() && is_help(words[1])) {
    for (const auto& verb : verbs()) {
      if (verb.name.starts_with(words[0] + " ")) fmt::print("  {:<20} {}\n", verb.name, verb.summary);
    }
    return 0;
  }
  refuse_verb(words);
}

}  // namespace

std::vector<std::string> flags_of(const Verb& verb) {
  return define(verb).parser.names();
}

namespace {

/// Runs the command; returns the exit code, and in `lost` why standard output took no more. The one catch.
int run_caught(const Words& words, int& lost) {
  try {
    return dispatch(words);
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    const auto* const system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && std::ferror(stdout) != 0) {  // fmt's
      lost = system->code().value();
      return kExitFailure;
    }
    fmt::print(stderr, "lockstep: {}\n", without_frames(error.what()));
    return kExitFailure;
  }
}

}  // namespace

int run_command_line(const Words& words) {
  int lost = 0;
  const int code = run_caught(words, lost);
  if (lost == 0 && std::fflush(stdout) != 0) lost = errno;
  if (lost == EPIPE) return code;  // whoever read it has seen enough
  if (lost == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "lockstep: standard output: {}\n",
             lost == 0 ? "not all of it could be written" : std::strerror(lost));
  return code == 0 ? kExitFailure : code;
}

}  // namespace lockstep::cli
