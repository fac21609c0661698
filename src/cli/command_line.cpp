#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <set>
#include <system_error>

#include "cli/flags.h"
#include "cli/nearest.h"
#include "lockstep/error.h"
#include "lockstep/plan/collectives.h"

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
  FlagParser parser(fmt::format("lockstep {}", verb.name), tail, std::string(verb.summary),
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

[[noreturn]] void refuse_verb(const Words& words) {
  const Words kinds = words_after(words[0]);
  if (kinds.empty()) {
    Words candidates = words_after("");
    candidates.insert(candidates.end(), {"--help", "--version"});
    refuse("lockstep", "verb", words[0], candidates);
  }
  if (words.size() > 1) refuse(fmt::format("lockstep {}", words[0]), "kind", words[1], kinds);
  throw UsageError(
      fmt::format("lockstep {}: one of these must follow: {}", words[0], fmt::join(kinds, ", ")));
}

/// A variable that the shell does not know (`--nnodes "$N"`) must not count as no flag at all.
[[noreturn]] void refuse_empty_value(const Verb& verb, const std::string& flag) {
  throw UsageError(fmt::format("lockstep {}: {}: the value is empty; hint: give one, or leave the flag out",
                               verb.name, flag));
}

/// The value of a flag that needs one, as a word of its own. Another flag there is a value forgotten.
const std::string& value_of(const Verb& verb, const std::string& flag, const std::string& word) {
  if (word.empty()) refuse_empty_value(verb, flag);
  if (!word.starts_with("--")) return word;
  throw UsageError(
      fmt::format("lockstep {0}: {1} needs a value; hint: {1}={2} if that is meant", verb.name, flag, word));
}

/// Refuses a word that the verb has no place for, and beside --help one that is none of the known: the verb
/// itself refuses that only when it runs.
void check_bare_words(const Verb& verb, const FlagParser& parser, const Words& bare, bool is_help) {
  const auto places = parser.words();
  for (size_t i = 0; i < bare.size(); ++i) {
    if (bare[i].empty()) {  // an unknown variable of the shell again
      throw UsageError(fmt::format("lockstep {}: the {} is empty; hint: give one, or leave it out", verb.name,
                                   i < places.size() ? places[i].name : "last word"));
    }
    const Words known = i < places.size() ? places[i].known : Words();
    const bool fits = std::any_of(known.begin(), known.end(), [&](const std::string& one) {
      return plan::plain_name(one) == plan::plain_name(bare[i]);
    });
    if (i < places.size() && (!is_help || known.empty() || fits)) continue;
    const std::string where = fmt::format("lockstep {}", verb.name);
    const std::string kind = nearest(bare[i], words_after(verb.name));
    if (kind.empty()) refuse(where, "word", bare[i], known);
    throw UsageError(fmt::format("{0}: unknown word {1}; hint: did you mean {0} {2}?", where, bare[i], kind));
  }
}

/// A command line behind its verb.
struct SortedWords {
  Words own;      ///< Flags, values and words of the verb.
  Words bare;     ///< Those of them that are neither a flag nor its value.
  Words program;  ///< A program and its arguments, or what follows `--`.
};

/// Separates a verb's own words from a program's, and spells flags with dashes (torchrun takes `--node_rank`
/// too).
SortedWords sort_words(const Verb& verb, const FlagParser& parser, const Words& words) {
  SortedWords sorted;
  auto& [own, bare, program] = sorted;
  std::set<std::string> seen;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      program.assign(words.begin() + static_cast<long>(i) + 1, words.end());
      break;
    }
    if (!word.starts_with("-") || word == "-") {
      if (verb.takes_program) {
        program.assign(words.begin() + static_cast<long>(i), words.end());
        break;
      }
      own.push_back(word);
      bare.push_back(word);
      continue;
    }
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
    if (!parser.knows(name)) refuse(fmt::format("lockstep {}", verb.name), "flag", name, parser.names());
    if (equals == word.size() - 1) refuse_empty_value(verb, name);
    if (!seen.insert(name).second && !parser.may_repeat(name))
      throw UsageError(fmt::format("lockstep {}: {} is given twice; hint: give it once", verb.name, name));
    own.push_back(equals == std::string::npos ? name : name + word.substr(equals));
    if (equals != std::string::npos) continue;
    if (i + 1 == words.size()) {
      if (!parser.takes_value(name)) continue;
      throw UsageError(
          fmt::format("lockstep {0}: {1} needs a value; hint: see lockstep {0} --help", verb.name, name));
    }
    const auto after = words.begin() + static_cast<long>(i) + 1;
    if (parser.takes_value(name)) {
      own.push_back(value_of(verb, name, words[++i]));
    } else if (parser.may_take_value(name) && !after->starts_with("-")) {
      // Of `--json plan.json` and `--json ./program` the one with a -- behind it cannot be a program.
      const bool is_value = !verb.takes_program || std::find(after, words.end(), "--") != words.end();
      if (is_value) own.push_back(value_of(verb, name, words[++i]));
    }
  }
  if (!verb.takes_program) {
    own.insert(own.end(), program.begin(), program.end());
    bare.insert(bare.end(), program.begin(), program.end());
  }
  return sorted;
}

long words_of(const Verb& verb) {
  return 1 + std::count(verb.name.begin(), verb.name.end(), ' ');
}

/// Fills the flags; false when help was asked for. What CLI11 says has no hint.
bool parse(FlagParser& parser, const Verb& verb, const Words& words) {
  try {
    return parser.parse(words);
  } catch (const UsageError& error) {
    const std::string text = error.what();
    if (text.find("; hint: ") != std::string::npos) throw;
    throw UsageError(fmt::format("{}; hint: see lockstep {} --help", text, verb.name));
  }
}

int run_verb(const Verb& verb, const Words& words) {
  auto [parser, action] = define(verb);
  const SortedWords sorted = sort_words(verb, parser, Words(words.begin() + words_of(verb), words.end()));
  check_bare_words(verb, parser, sorted.bare, false);
  try {
    if (!parse(parser, verb, sorted.own)) {
      check_bare_words(verb, parser, sorted.bare, true);
      fmt::print("{}", parser.help());
      return 0;
    }
    parser.check();
    return action({.words = words, .program = sorted.program});
  } catch (const UsageError& error) {
    const std::string_view text = error.what();
    if (text.starts_with("lockstep ")) throw;
    throw UsageError(fmt::format("lockstep {}: {}", verb.name, text));
  } catch (const std::filesystem::filesystem_error& error) {
    throw UsageError(fmt::format("lockstep {}: {}{}{}: {}; hint: check this path, and what you may do there",
                                 verb.name, error.path1().string(), error.path2().empty() ? "" : " to ",
                                 error.path2().string(), error.code().message()));
  }
}

/// What an error says, without what libraries add that a user cannot read: LibTorch a page of C++ frames,
/// which would hide the rest, others the names of their types.
std::string plain_text(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  std::string text = error.what();
  text.resize(std::min(text.size(), text.find("\nException raised from ")));
  constexpr std::string_view kJson = "[json.exception.", kFiles = "filesystem error: ";
  for (size_t at = 0; (at = text.find(kJson)) != std::string::npos;)
    text.erase(at, text.find(' ', at) + 1 - at);
  for (size_t at = 0; (at = text.find(kFiles)) != std::string::npos;) text.erase(at, kFiles.size());
  return text;
}

/// Nothing more can be said where standard error takes nothing; fmt::print would throw.
void complain(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

bool is_help(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

void print_kinds(const std::string& word) {
  fmt::print("Usage: lockstep {} KIND [FLAGS]\n\nKinds, each with a --help of its own:\n", word);
  for (const auto& verb : verbs()) {
    if (verb.name.starts_with(word + " ")) fmt::print("  {:<20} {}\n", verb.name, verb.summary);
  }
}

/// Help on the verb that these words name, on all verbs if there are none.
int help(Words words) {
  if (words.empty()) {
    fmt::print("{}", usage());
    return 0;
  }
  if (const Verb* verb = find_verb(words)) {
    words.insert(words.begin() + words_of(*verb), "--help");
    return run_verb(*verb, words);
  }
  if (words.size() > 1 || words_after(words[0]).empty()) refuse_verb(words);
  print_kinds(words[0]);
  return 0;
}

int dispatch(const Words& words) {
  if (words.empty()) return help({});
  if (is_help(words[0])) return help({words.begin() + 1, words.end()});
  if (words.size() > 1 && is_help(words[1]) && !words_after(words[0]).empty()) {
    Words others = words;
    others.erase(others.begin() + 1);
    return help(others);
  }
  if (const Verb* verb = find_verb(words)) return run_verb(*verb, words);
  refuse_verb(words);
}

}  // namespace

std::vector<std::string> words_after(std::string_view prefix) {
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

Completions completions_of(const Verb& verb) {
  const FlagParser parser = define(verb).parser;
  Completions found{.words = words_after(verb.name), .values = {}, .takes_file = verb.takes_program};
  for (const auto& word : parser.words()) {
    found.words.insert(found.words.end(), word.known.begin(), word.known.end());
    if (plan::plain_name(word.name) == "folder" || plan::plain_name(word.name) == "path")
      found.takes_file = true;
  }
  for (const auto& name : parser.names()) {
    found.words.push_back(name);
    if (parser.takes_value(name)) found.values[name] = parser.known(name);
  }
  return found;
}

namespace {

/// Runs the command; returns the exit code, and in `lost` why standard output took no more. The one catch.
int run_caught(const Words& words, int& lost) {
  try {
    return dispatch(words);
  } catch (const UsageError& error) {
    complain(plain_text(error));
    return kExitUsage;
  } catch (const std::exception& error) {
    const auto* const system = dynamic_cast<const std::system_error*>(&error);
    if (system != nullptr && std::ferror(stdout) != 0) {  // fmt's
      lost = system->code().value();
      return kExitFailure;
    }
    complain("lockstep: " + plain_text(error));
    return kExitFailure;
  }
}

}  // namespace

int run_command_line(const Words& words) {
  int lost = 0;
  const int code = run_caught(words, lost);
  if (lost == 0 && std::fflush(stdout) != 0) lost = errno;
  if (lost != EPIPE && (lost != 0 || std::ferror(stdout) != 0)) {  // EPIPE: whoever read it has seen enough
    complain(fmt::format("lockstep: standard output: {}",
                         lost == 0 ? "not all of it could be written" : std::strerror(lost)));
    return code == 0 ? kExitFailure : code;
  }
  return code == 0 && std::ferror(stderr) != 0 ? kExitFailure : code;
}

}  // namespace lockstep::cli
