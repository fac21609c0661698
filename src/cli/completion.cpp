#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/command_line.h"
#include "cli/define.h"
#include "cli/flags.h"

namespace lockstep::cli {

namespace {

// Both scripts are made from the list of verbs and their flags, so that they cannot fall behind. A case for
// each verb sets what may follow it; a flag that needs a value takes one of its own, or a file.

constexpr std::string_view kBash = R"(# bash completion for lockstep
_lockstep() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}}
  local name="" words="" valued="" files="" i
  [ "$COMP_CWORD" -ge 3 ] && verb="$verb ${{COMP_WORDS[2]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{first_words}"
  else
    case $verb in
{cases}    esac
    case " $valued " in *" $previous "*)
      words="" files=yes
      case "$name $previous" in
{values}      esac
    esac
    for ((i = 2; i < COMP_CWORD; i++)); do
      [ "${{COMP_WORDS[i]}}" = -- ] && words="" files=yes
    done
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  if [ -n "$files" ] || [ ${{#COMPREPLY[@]}} -eq 0 ]; then
    local found
    mapfile -t found < <(compgen -f -- "$word")
    COMPREPLY+=("${{found[@]}}")
    compopt -o filenames 2>/dev/null  # quotes spaces; fails where nobody types
  fi
  return 0
}}
complete -F _lockstep lockstep ./lockstep
)";

constexpr std::string_view kZsh = R"(#compdef lockstep
# zsh completion for lockstep
_lockstep() {{
  local verb=$words[2] previous=$words[CURRENT-1] name="" files=""
  local -a offered valued
  (( CURRENT >= 4 )) && verb="$verb $words[3]"
  if (( CURRENT == 2 )); then
    compadd -- {first_words}
    return
  fi
  case $verb in
{cases}    *) files=yes ;;
  esac
  if (( ${{valued[(Ie)$previous]}} )); then
    offered=() files=yes
    case "$name $previous" in
{values}    esac
  fi
  (( ${{words[(ie)--]}} < CURRENT )) && offered=() files=yes
  (( $#offered )) && compadd -- $offered
  [[ -n $files ]] && _files
  return 0
}}
if [ "$funcstack[1]" = _lockstep ]; then
  _lockstep "$@"  # loaded by name from a folder of completions: this is the first call
else
  compdef _lockstep lockstep ./lockstep
fi
)";

/// How a shell spells its cases.
struct Shell {
  std::string_view script;
  std::string_view a_case;   ///< Of a verb.
  std::string_view a_value;  ///< Of a flag whose values are known.
};

constexpr Shell kShells[] = {
    {kBash, "      {pattern}) name=\"{name}\" words=\"{words}\" valued=\"{valued}\" files={files} ;;\n",
     "        \"{name} {flag}\") words=\"{words}\" files= ;;\n"},
    {kZsh, "    {pattern}) name=\"{name}\" offered=({words}) valued=({valued}) files={files} ;;\n",
     "      \"{name} {flag}\") offered=({words}) files= ;;\n"}};

std::string case_of(const Shell& shell, const std::string& pattern, std::string_view name,
                    const Completions& found) {
  std::vector<std::string> valued;
  for (const auto& [flag, values] : found.values) valued.push_back(flag);
  return fmt::format(fmt::runtime(shell.a_case), fmt::arg("pattern", pattern), fmt::arg("name", name),
                     fmt::arg("words", fmt::join(found.words, " ")),
                     fmt::arg("valued", fmt::join(valued, " ")),
                     fmt::arg("files", found.takes_file ? "yes" : ""));
}

std::string values_of(const Shell& shell, std::string_view name, const Completions& found) {
  std::string text;
  for (const auto& [flag, values] : found.values) {
    if (values.empty()) continue;
    text += fmt::format(fmt::runtime(shell.a_value), fmt::arg("name", name), fmt::arg("flag", flag),
                        fmt::arg("words", fmt::join(values, " ")));
  }
  return text;
}

std::string script(const Shell& shell) {
  // Verbs of two words come first: `plan pipeline` is not `plan` and something.
  std::string of_two_words, of_one, values;
  for (const auto& verb : verbs()) {
    if (verb.group.empty()) continue;
    const Completions found = completions_of(verb);
    values += values_of(shell, verb.name, found);
    if (verb.name.find(' ') != std::string_view::npos) {
      of_two_words += case_of(shell, fmt::format("\"{}\"", verb.name), verb.name, found);
    } else {
      of_one += case_of(shell, fmt::format("{0}|\"{0} \"*", verb.name), verb.name, found);
    }
  }
  for (const auto& word : words_after("")) {  // `bench` alone is no verb
    if (find_verb({word}) != nullptr) continue;
    of_one += case_of(shell, word, word, {.words = words_after(word), .values = {}, .takes_file = false});
  }
  return fmt::format(
      fmt::runtime(shell.script),
      fmt::arg("first_words", fmt::format("{} help --help --version", fmt::join(words_after(""), " "))),
      fmt::arg("cases", of_two_words + of_one), fmt::arg("values", values));
}

}  // namespace

Action define_completion(Flags flags) {
  const auto shell = std::make_shared<std::string>();
  flags.word_of("shell", *shell, {"bash", "zsh"}, "bash or zsh");
  return [shell](const Invocation&) {
    fmt::print("{}", script(kShells[*shell == "bash" ? 0 : 1]));
    return 0;
  };
}

}  // namespace lockstep::cli
