#include <fmt/format.h>

#include <memory>

#include "cli/command_line.h"
#include "cli/define.h"
#include "cli/flags.h"

namespace lockstep::cli {

namespace {

// Both scripts are made from the list of verbs and their flags, so that they cannot fall behind. Words that
// are neither complete to file names.

constexpr std::string_view kBash = R"(# bash completion for lockstep
_lockstep() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words=""
  [ "$COMP_CWORD" -ge 3 ] && verb="$verb ${{COMP_WORDS[2]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{first_words}"
  else
    case $verb in
{cases}    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _lockstep lockstep ./lockstep
)";

constexpr std::string_view kZsh = R"(#compdef lockstep
# zsh completion for lockstep
_lockstep() {{
  local verb=$words[2]
  (( CURRENT >= 4 )) && verb="$verb $words[3]"
  if (( CURRENT == 2 )); then
    compadd -- {first_words}
    return
  fi
  case $verb in
{cases}  esac
  _files
}}
if [ "$funcstack[1]" = _lockstep ]; then
  _lockstep "$@"  # loaded by name from a folder of completions: this is the first call
else
  compdef _lockstep lockstep ./lockstep
fi
)";

std::string first_word(const Verb& verb) {
  return std::string(verb.name.substr(0, verb.name.find(' ')));
}

/// The words that may follow `word` to make a verb: `launcher`, `blas`, ... after `bench`.
std::string kinds_after(const std::string& word) {
  std::string kinds;
  for (const auto& verb : verbs()) {
    if (verb.name.starts_with(word + " ")) kinds += fmt::format("{} ", verb.name.substr(word.size() + 1));
  }
  return kinds;
}

/// One case for each verb, and one for a word that several verbs start with: what may follow it. Verbs of two
/// words come first: `plan pipeline` is not `plan` and something.
template <typename MakeCase>
std::string cases(const MakeCase& make_case) {
  std::string of_two_words, of_one;
  for (const auto& verb : verbs()) {
    if (verb.group.empty()) continue;
    const std::string flags = fmt::format("{}", fmt::join(flags_of(verb), " "));
    if (verb.name.find(' ') != std::string_view::npos) {
      of_two_words += make_case(fmt::format("\"{}\"", verb.name), flags);
    } else {
      of_one +=
          make_case(fmt::format("{0}|\"{0} \"*", verb.name), kinds_after(std::string(verb.name)) + flags);
    }
  }
  return of_two_words + of_one + make_case("bench", kinds_after("bench"));
}

std::string first_words() {
  std::string text;
  for (const auto& verb : verbs()) {
    const std::string word = first_word(verb);
    if (!verb.group.empty() && text.find(word + " ") == std::string::npos) text += word + " ";
  }
  return text + "--help --version";
}

std::string script(const std::string& shell) {
  if (shell == "bash") {
    const auto make_case = [](const std::string& pattern, const std::string& words) {
      return fmt::format("      {}) words=\"{}\" ;;\n", pattern, words);
    };
    return fmt::format(kBash, fmt::arg("first_words", first_words()), fmt::arg("cases", cases(make_case)));
  }
  const auto make_case = [](const std::string& pattern, const std::string& words) {
    return fmt::format("    {}) compadd -- {} ;;\n", pattern, words);
  };
  return fmt::format(kZsh, fmt::arg("first_words", first_words()), fmt::arg("cases", cases(make_case)));
}

}  // namespace

Action define_completion(Flags flags) {
  const auto shell = std::make_shared<std::string>();
  flags.word_of("shell", *shell, {"bash", "zsh"}, "bash or zsh");
  return [shell](const Invocation&) {
    fmt::print("{}", script(*shell));
    return 0;
  };
}

}  // namespace lockstep::cli
