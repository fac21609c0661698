// The command as a user meets it: the built program, its words, its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "launch/launched.h"
#include "support/child.h"

namespace lockstep::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

Finished lockstep(std::vector<std::string> words, const Child::Options& options = {}) {
  words.insert(words.begin(), LOCKSTEP_COMMAND);
  return run_to_end(words, options);
}

TEST(Command, HelpListsEveryVerbInOneLine) {
  const auto result = lockstep({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const auto& verb : cli::verbs()) {
    const std::string line = std::string(verb.name) + " ";
    if (verb.group.empty()) {
      EXPECT_THAT(result.output, Not(HasSubstr("  " + line)));
    } else {
      EXPECT_THAT(result.output, AllOf(HasSubstr("  " + line), HasSubstr(std::string(verb.summary))));
    }
  }
}

TEST(Command, EveryVerbHasHelpWithAnExample) {
  for (const auto& verb : cli::verbs()) {
    std::vector<std::string> words;
    std::istringstream name{std::string(verb.name)};
    for (std::string word; name >> word;) words.push_back(word);
    words.push_back("--help");
    const auto result = lockstep(words);
    EXPECT_EQ(result.exit_code, 0) << verb.name;
    EXPECT_THAT(result.output, AllOf(HasSubstr("Usage: lockstep " + std::string(verb.name)),
                                     HasSubstr("Example:\n  " + std::string(verb.example) + "\n")));
    EXPECT_EQ(result.errors, "");
  }
}

TEST(Command, VersionTellsLockstepLibTorchAndEngines) {
  const auto result = lockstep({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, MatchesRegex("lockstep [0-9.]+\nlibtorch .+\nengine threads .+\nengine shm .+\n"
                                          "engine gloo .+\nengine mpi .+\n"));
}

TEST(Command, VersionIsJsonToo) {
  const auto document = nlohmann::json::parse(lockstep({"--version", "--json"}).output);
  EXPECT_THAT(document["lockstep"], MatchesRegex("[0-9.]+"));
  EXPECT_EQ(document["engines"].size(), 4U);
  EXPECT_EQ(document["engines"][0]["name"], "threads");
}

TEST(Command, HelpMayComeBeforeTheVerb) {
  EXPECT_EQ(lockstep({"help", "plan"}).output, lockstep({"plan", "--help"}).output);
  EXPECT_EQ(lockstep({"--help", "plan", "pipeline"}).output, lockstep({"plan", "pipeline", "--help"}).output);
  EXPECT_EQ(lockstep({"lab", "help"}).output, lockstep({"lab", "--help"}).output);
  EXPECT_EQ(lockstep({"help", "bench"}).output, lockstep({"bench", "--help"}).output);
  EXPECT_EQ(lockstep({"plan", "all_reduce", "--help"}).exit_code, 0);
  EXPECT_EQ(lockstep({"lab", "start", "9", "--help"}).exit_code, 0);
}

TEST(Command, UsageLinesHaveTheWords) {
  const auto usage = [](const std::vector<std::string>& words) { return lockstep(words).output; };
  EXPECT_THAT(usage({"generate", "--help"}), HasSubstr("Usage: lockstep generate FOLDER [FLAGS]\n"));
  EXPECT_THAT(usage({"lab", "start", "--help"}), HasSubstr("Usage: lockstep lab start [LESSON] [FLAGS]\n"));
  EXPECT_THAT(usage({"run", "--help"}), HasSubstr("Usage: lockstep run [FLAGS] [--] PROGRAM [ARGUMENTS]\n"));
  EXPECT_THAT(usage({"checkpoint", "--help"}), HasSubstr("Usage: lockstep checkpoint KIND [FLAGS]\n"));
}

struct Mistake {
  std::vector<std::string> words;
  std::string expected;
};

TEST(Command, MistakesExitWithTwoAndNameTheNearest) {
  const std::vector<Mistake> mistakes = {
      {{"docter"}, "lockstep: unknown verb docter; hint: did you mean doctor?"},
      {{"zebra"}, "lockstep: unknown verb zebra; hint: see lockstep --help"},
      {{"--verson"}, "lockstep: unknown verb --verson; hint: did you mean --version?"},
      {{"--halp"}, "hint: did you mean --help?"},
      {{"version"}, "hint: did you mean --version?"},
      {{"-V"}, "hint: did you mean --version?"},
      {{"help", "pln"}, "lockstep: unknown verb pln; hint: did you mean plan?"},
      {{"--version", "extra"}, "lockstep --version: unknown word extra"},
      {{"doctor", "--help", "extra"},
       "lockstep doctor: unknown word extra; hint: see lockstep doctor --help"},
      {{"plan", "pipelin", "--help"}, "unknown word pipelin; hint: did you mean lockstep plan pipeline?"},
      {{"plan", "alreduce", "--help"}, "unknown word alreduce; hint: did you mean allreduce?"},
      {{"lab", "chek", "--help"}, "hint: did you mean lockstep lab check?"},
      {{"help", "bench", "luncher"}, "unknown kind luncher; hint: did you mean launcher?"},
      {{"plan", "-w", "4"}, "lockstep plan: unknown flag -w; hint: did you mean --world?"},
      {{"lab", "start", "-1"}, "lockstep lab start: unknown flag -1; hint: see lockstep lab start --help"},
      {{"plan", "allreduce", "--algorithm", "rng"}, "; did you mean ring?"},
      {{"simulate", "allreduce", "--algorithms", "rng"}, "; did you mean ring?"},
      {{"plan", "pipeline", "--schedule", "1f1"}, "; did you mean 1f1b?"},
      {{"simulate", "pipeline", "--schedule", "gpip"}, "; did you mean gpipe?"},
      {{"train", "--parallel", "dpd"}, "'dpd' is none of ddp, pipeline, none; hint: did you mean ddp?"},
      {{"completion", "bsh"}, "hint: did you mean bash?"},
      {{"lab", "fast-track", "allreduce"}, "; did you mean all-reduce?"},
      {{"bench"}, "lockstep bench: one of these must follow: launcher, blas"},
      {{"bench", "luncher"}, "lockstep bench: unknown kind luncher; hint: did you mean launcher?"},
      {{"train", "--step", "3"}, "lockstep train: unknown flag --step; hint: did you mean --steps?"},
      {{"train", "--steps", "three"}, "--steps: 'three' is not a whole number"},
      {{"train", "--steps", "0"}, "--steps: 0 is not between 1 and"},
      {{"train", "--steps"}, "--steps"},
      {{"completion", "fish"}, "'fish' is none of bash, zsh"},
      {{"doctor", "extra"}, "extra"},
      {{"plan", "pipelin"}, "lockstep plan: collective 'pipelin': unknown; hint: did you mean pipeline?"},
      {{"simulate", "pipelin"}, "hint: did you mean pipeline?"},
      {{"plan", "alreduce"}, "hint: did you mean allreduce?"},
      {{"plan", "zebra"}, "hint: one of all_reduce, broadcast"},
  };
  for (const auto& mistake : mistakes) {
    const auto result = lockstep(mistake.words);
    EXPECT_EQ(result.exit_code, 2) << mistake.words[0];
    EXPECT_THAT(result.errors, HasSubstr(mistake.expected));
    EXPECT_EQ(result.output, "");
  }
}

TEST(Command, JsonStandsAloneOnStandardOutputOrInAFile) {
  const auto alone = lockstep({"run", "--dry-run", "--json", "--", "true"});
  EXPECT_EQ(alone.exit_code, 0);
  const auto plan = nlohmann::json::parse(alone.output);
  EXPECT_EQ(plan["ranks"].size(), 1U);
  TemporaryFolder folder;
  const auto beside =
      lockstep({"run", "--dry-run", "--json=" + (folder / "plan.json").string(), "--", "true"});
  EXPECT_EQ(beside.exit_code, 0);
  EXPECT_THAT(beside.output, HasSubstr("Rank 0"));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "plan.json"))["ranks"].size(), 1U);
  const auto nowhere = lockstep({"run", "--dry-run", "--json=/proc/nowhere/plan.json", "--", "true"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.errors, HasSubstr("--json /proc/nowhere/plan.json: No such file or directory"));
}

TEST(Command, JsonsFileIsCheckedBeforeTheWork) {
  // Both would print what they found first.
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"doctor", "--json=/proc/nowhere/x"}, {"plan", "allreduce", "--json=/proc/nowhere/x"}}) {
    const auto refused = lockstep(words);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(refused.output, "");
    EXPECT_THAT(refused.errors, HasSubstr(": --json /proc/nowhere/x: No such file or directory; hint:"));
  }
}

TEST(Command, JsonGoesIntoAPipeAndToWhereALinkLeads) {
  namespace fs = std::filesystem;
  TemporaryFolder folder;
  const std::string plan = "'" LOCKSTEP_COMMAND "' plan allreduce --algorithm ring ";
  const auto in_folder = [&](const std::string& script) {
    return run_to_end({"bash", "-c", script}, {.folder = folder.path()});
  };
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto piped = in_folder("cat pipe > read & timeout 30 " + plan + "--json pipe; echo $?; wait");
  EXPECT_THAT(piped.output, HasSubstr("\n0\n")) << piped.errors;
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "read"))["ranks"].size(), 4U);
  const auto opened = in_folder("{ " + plan + "--json /dev/fd/7; } 7>&1 >/dev/null | cat");
  EXPECT_EQ(nlohmann::json::parse(opened.output)["ranks"].size(), 4U) << opened.errors;

  write_file(folder / "target.json", "old");
  fs::create_directory(folder / "links");
  fs::create_symlink("../target.json", folder / "links/first");
  fs::create_symlink("first", folder / "links/second");
  fs::create_symlink("new.json", folder / "links/dangling");
  for (const std::string link : {"second", "dangling"}) {
    EXPECT_EQ(in_folder(plan + "--json links/" + link).exit_code, 0);
    EXPECT_TRUE(fs::is_symlink(folder / "links" / link));
  }
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "target.json"))["ranks"].size(), 4U);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "links/new.json"))["ranks"].size(), 4U);
  const auto refused = in_folder(plan + "--json links");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--json links: Is a directory; hint:"));
}

TEST(Command, JsonsFileMayBeAWordOfItsOwnIfTheProgramIsDelimited) {
  TemporaryFolder folder;
  const auto result =
      lockstep({"run", "--dry-run", "--json", "plan.json", "--", "true"}, {.folder = folder.path()});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "plan.json"))["command"].size(), 1U);
  const auto program = lockstep({"run", "--dry-run", "--json", "true"});
  EXPECT_EQ(nlohmann::json::parse(program.output)["command"].size(), 1U);
  EXPECT_THAT(lockstep({"run", "--help"}).output, HasSubstr("--json=FILE"));
}

TEST(Command, AFlagIsNoValueOfTheFlagBeforeIt) {
  const auto train = lockstep({"train", "--steps", "2", "--run-dir", "--resume"});
  EXPECT_EQ(train.exit_code, 2);
  EXPECT_EQ(train.errors,
            "lockstep train: --run-dir needs a value; hint: --run-dir=--resume if that is meant\n");
  EXPECT_EQ(lockstep({"checkpoint", "export", "X", "--out", "--force"}).exit_code, 2);
  EXPECT_EQ(lockstep({"run", "--log-dir", "--", "true"}).exit_code, 2);
  const auto meant = lockstep({"run", "--dry-run", "--log-dir=--odd", "--", "true"});
  EXPECT_EQ(meant.exit_code, 0) << meant.errors;
  EXPECT_THAT(meant.output, HasSubstr("--odd/rank_0"));
  EXPECT_THAT(lockstep({"plan", "allreduce", "--world", "-1"}).errors, HasSubstr("-1 is not between 1 and"));
}

TEST(Command, LostOutputIsAFailureUnlessTheReaderLeft) {
  const std::string command = "'" LOCKSTEP_COMMAND "' ";
  // The last is larger than any buffer.
  for (const std::string words : {"plan allreduce --algorithm ring", "--help", "run --dry-run --json -- true",
                                  "plan allreduce --algorithm ring --world 64 --json"}) {
    const auto lost = run_to_end({"bash", "-c", command + words + " > /dev/full"});
    EXPECT_EQ(lost.exit_code, 1) << words;
    EXPECT_EQ(lost.errors, "lockstep: standard output: No space left on device\n") << words;
    const auto left = run_to_end({"bash", "-c", command + words + " | true"});
    EXPECT_EQ(left.errors, "") << words;
  }
}

TEST(Command, ClosedAndFullDescriptorsAreNoAbort) {
  const auto exit_code = [](const std::string& words, const std::string& redirections) {
    return run_to_end({"bash", "-c", "'" LOCKSTEP_COMMAND "' " + words + " " + redirections}).exit_code;
  };
  for (const std::string words : {"plan allreduce", "--version", "run --dry-run -- true"}) {
    for (const std::string lost :
         {">&-", ">&- 2>&-", "<&- >&- 2>&-", "> /dev/full 2> /dev/full", "> /dev/full 2>&-"})
      EXPECT_EQ(exit_code(words, lost), 1) << words << lost;
    EXPECT_EQ(exit_code(words, "2>&-"), 0) << words;
  }
  EXPECT_EQ(exit_code("nonsense", "2> /dev/full"), 2);
  EXPECT_EQ(exit_code("checkpoint verify nowhere", "2> /dev/full"), 2);
  // What is opened first must not take the place of standard output, and with it what is printed.
  TemporaryFolder folder;
  const std::string file = folder / "plan.json";
  EXPECT_EQ(exit_code("plan allreduce --algorithm ring --json=" + file, ">&-"), 1);
  EXPECT_EQ(nlohmann::json::parse(read_file(file))["ranks"].size(), 4U);
}

/// What only a programmer can read: a library's own words that nobody has translated.
std::string library_words_in(const std::string& text) {
  for (const std::string words :
       {"json.exception", "filesystem error", "std::", "required INT", "required TEXT", "At Most",
        "Could not convert", "terminate called", "basic_string", "stoi"}) {
    if (text.find(words) != std::string::npos) return words;
  }
  return "";
}

TEST(Command, RefusesBadInputInPlainWords) {
  const std::string name(300, 'x');
  TemporaryFolder folder;
  write_file(folder / "broken.json", "{\"collective\": \"all_reduce\",,}");
  write_file(folder / "array.json", "[1]");
  write_file(folder / "text", "words");
  write_file(folder / "bytes", "\xff\xfe");
  std::filesystem::create_directory(folder / "folder");
  std::filesystem::create_symlink("loop", folder / "loop");
  const std::vector<Mistake> mistakes = {
      {{"train", "--steps"}, "lockstep train: --steps needs a value; hint: see lockstep train --help"},
      {{"run", "--env"}, "lockstep run: --env needs a value; hint: "},
      {{"run", "--nproc-per-node"}, "lockstep run: --nproc-per-node needs a value; hint: "},
      {{"train", "--steps", "3", "--steps=4"}, "lockstep train: --steps is given twice; hint: give it once"},
      {{"run", "--nproc-per-node", "1", "--nproc_per_node", "2", "true"}, "--nproc-per-node is given twice"},
      {{"plan", "allreduce", "--json", "a", "--json", "b"}, "--json is given twice"},
      {{"train", "--resume=maybe"}, "lockstep train: --resume takes no value; hint: leave it out"},
      {{"generate"}, "FOLDER is required; hint: see lockstep generate --help"},
      {{"lab", "start", ""}, "lockstep lab start: the lesson is empty; hint: give one, or leave it out"},
      {{"plan", ""}, "lockstep plan: the collective is empty; hint: "},
      {{"generate", ""}, "lockstep generate: the FOLDER is empty; hint: "},
      {{"checkpoint", "show", ""}, "lockstep checkpoint show: the path is empty; hint: "},
      {{"train", "--seed", "18446744073709551616"},
       "--seed: 18446744073709551616 is not between 0 and 9223372036"},
      {{"train", "--seed", "9223372036854775808"},
       "--seed: 9223372036854775808 is not between 0 and 9223372036"},
      {{"train", "--seed", "-1"}, "--seed: -1 is not between 0 and"},
      {{"train", "--seed", "0x10"}, "--seed: '0x10' is not a whole number"},
      {{"train", "--steps", "1e3"}, "--steps: '1e3' is not a whole number"},
      {{"train", "--steps", " 7"}, "--steps: ' 7' is not a whole number"},
      {{"train", "--lr", "1e999"}, "--lr: 1e999 is not between"},
      {{"train", "--lr", "nan"}, "--lr: nan is not between"},
      {{"train", "--lr", "0.1x"}, "--lr: '0.1x' is not a number"},
      {{"plan", "allreduce", "--world", "-99999999999999999999"},
       "-99999999999999999999 is not between 1 and"},
      {{"bench", "allreduce", "--sizes", "9223372036854775807GiB"},
       "--sizes '9223372036854775807GiB': not a number"},
      {{"run", "--max-restarts", "4294967297", "true"}, "--max-restarts: 4294967297 is not between 0 and"},
      {{"run", "--master-port", "65537", "true"}, "--master-port: 65537 is not between 1 and 65535"},
      {{"plan", "allreduce", "--json=" + name},
       "lockstep plan: --json " + name + ": File name too long; hint: "},
      {{"plan", "allreduce", "--json=loop"}, "--json loop: Too many levels of symbolic links; hint: "},
      {{"plan", "--file", name}, "--file " + name + ": cannot be read: File name too long"},
      {{"plan", "--file", "folder"}, "--file folder: cannot be read: Is a directory"},
      {{"plan", "--file", "broken.json"},
       "--file broken.json: plan json line 1: not valid JSON from here on"},
      {{"plan", "pipeline", "--file", "broken.json"},
       "--file broken.json: pipeline json line 1: not valid JSON"},
      {{"plan", "--file", "array.json"}, "--file array.json: "},
      {{"plan", "--file", "bytes"}, "--file bytes: "},
      {{"bench", "allreduce", "--model", "broken.json"}, "--model broken.json: is no model; hint: "},
      {{"bench", "allreduce", "--model", name}, "--model " + name + ": cannot be read; hint: "},
      {{"run", "--log-dir", name, "true"}, "--log-dir " + name + ": cannot make"},
      {{"run", "--log-dir", "text", "true"}, "--log-dir text: cannot make"},
      {{"checkpoint", "show", name}, "checkpoint show: " + name},
      {{"checkpoint", "verify", "text"}, "checkpoint verify: text: is no folder; hint: "},
      {{"checkpoint", "verify", "loop"}, "checkpoint verify: loop: "},
      {{"train", "--resume", "--run-dir", name}, name + "/run.json: File name too long; hint: "},
      {{"train", "--resume", "--run-dir", "text"}, "text/run.json"},
      {{"train", "--resume", "--run-dir", "loop"}, "loop/run.json"},
      {{"generate", name, "--seed", "1e3"}, "--seed: '1e3' is not a whole number"},
      {{name}, "lockstep: unknown verb " + name},
  };
  for (const auto& mistake : mistakes) {
    const auto result = lockstep(mistake.words, {.folder = folder.path()});
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(mistake.expected));
    EXPECT_EQ(library_words_in(result.errors), "") << result.errors;
    EXPECT_EQ(count_lines_with(result.errors, ""), 1) << result.errors;
    EXPECT_EQ(result.output, "");
  }
}

TEST(Command, ReadsNumbersAsPeopleWriteThem) {
  const auto plan = [](const std::string& world) {
    return lockstep({"plan", "allreduce", "--algorithm", "ring", "--world", world});
  };
  EXPECT_EQ(plan("010").output, plan("10").output) << "not octal";
  EXPECT_EQ(lockstep({"run", "--dry-run", "--monitor-interval", "1e-1", "true"}).exit_code, 0);
  EXPECT_EQ(
      lockstep({"run", "--dry-run", "--env", "A=1", "--env", "B=2", "--standalone", "--standalone", "true"})
          .exit_code,
      0);
}

TEST(Command, AWritePastTheLimitOfFilesIsAnErrorNotASignal) {
  const TemporaryFolder folder;
  const std::string file = folder / "out";
  const auto lost =
      run_to_end({"bash", "-c",
                  // The file is at the limit; ThreadSanitizer needs small ones of its own.
                  "set -o pipefail; truncate -s 2M '" + file +
                      "'; (ulimit -f 2048; '" LOCKSTEP_COMMAND "' plan allreduce --algorithm ring >> '" +
                      file + "') 2>&1 | cat"});
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_EQ(lost.output, "lockstep: standard output: File too large\n");
}

TEST(Command, ColoursOnlyOnATerminalAndNotWithNoColor) {
  const std::vector<std::string> words = {LOCKSTEP_COMMAND, "run", "--", "echo", "hi"};
  const std::string line = std::string(LOCKSTEP_COMMAND) + " run -- echo hi";
  Child plain(words);
  EXPECT_EQ(plain.wait(), 0);
  EXPECT_EQ(plain.output(), "[0:0] hi\n");
  // script(1) gives its child a terminal.
  Child terminal({"script", "-qec", line, "/dev/null"},
                 {.environment = {{"TERM", "xterm"}, {"NO_COLOR", ""}}});
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_THAT(terminal.output(), HasSubstr("\033[36m[0:0]\033[0m hi"));
  Child no_colour({"script", "-qec", line, "/dev/null"},
                  {.environment = {{"TERM", "xterm"}, {"NO_COLOR", "1"}}});
  EXPECT_EQ(no_colour.wait(), 0);
  EXPECT_THAT(no_colour.output(), AllOf(HasSubstr("[0:0] hi"), Not(HasSubstr("\033["))));
}

/// What a shell offers for these words, the last of which is being typed.
std::string completions_in_bash(const std::vector<std::string>& words,
                                const std::filesystem::path& folder = {}) {
  std::string script = "eval \"$('" LOCKSTEP_COMMAND "' completion bash)\"; COMP_WORDS=(lockstep";
  for (const auto& word : words) script += " '" + word + "'";
  script += "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lockstep; (IFS='|'; echo \"${COMPREPLY[*]}\")";
  Child shell({"bash", "--norc", "-c", script}, {.folder = folder});
  EXPECT_EQ(shell.wait(), 0) << shell.errors();
  return shell.output();
}

std::string completions_in_zsh(const std::vector<std::string>& words) {
  // Outside of a line editor zsh cannot complete, so that what the function would offer is caught by
  // stand-ins.
  std::string script =
      "compdef() { : }; compadd() { [[ $1 == -- ]] && shift; print -- \"$@\" }; _files() { print FILES }; "
      "eval \"$('" LOCKSTEP_COMMAND "' completion zsh)\"; words=(lockstep";
  for (const auto& word : words) script += " '" + word + "'";
  script += "); CURRENT=${#words}; _lockstep";
  Child shell({"zsh", "-f", "-c", script});
  EXPECT_EQ(shell.wait(), 0) << shell.errors();
  return shell.output();
}

TEST(Completion, OffersVerbsKindsAndFlags) {
  EXPECT_EQ(completions_in_bash({"doc"}), "doctor\n");
  EXPECT_EQ(completions_in_bash({"bench", "l"}), "launcher\n");
  EXPECT_EQ(completions_in_bash({"bench", "launcher", "--ro"}), "--rounds\n");
  EXPECT_EQ(completions_in_bash({"plan", "pipe"}), "pipeline\n");
  EXPECT_EQ(completions_in_bash({"plan", "pipeline", "--sch"}), "--schedule\n");
  EXPECT_EQ(completions_in_bash({"plan", "allreduce", "--al"}), "--algorithm\n");
  EXPECT_EQ(completions_in_bash({"run", "--nproc"}), "--nproc-per-node\n");
  EXPECT_EQ(completions_in_bash({"run", "--bind", "core", "--max"}), "--max-restarts\n");
  EXPECT_THAT(completions_in_zsh({""}),
              AllOf(HasSubstr("doctor"), HasSubstr("bench"), Not(HasSubstr("probe"))));
  EXPECT_THAT(completions_in_zsh({"bench", ""}), HasSubstr("launcher"));
  EXPECT_THAT(completions_in_zsh({"simulate", "pipeline", "--"}), HasSubstr("--microbatches"));
  EXPECT_THAT(completions_in_zsh({"run", "--b"}), HasSubstr("--bind"));
  EXPECT_THAT(completions_in_zsh({"run", "--bind", "core", ""}),
              AllOf(HasSubstr("--bind"), HasSubstr("FILES")));
}

TEST(Completion, OffersSubVerbsAndKnownValues) {
  EXPECT_EQ(completions_in_bash({"checkpoint", ""}), "show|verify|export\n");
  EXPECT_EQ(completions_in_bash({"lab", "he"}), "\n");
  EXPECT_EQ(completions_in_bash({"lab", "fa"}), "fast-track\n");
  EXPECT_EQ(completions_in_bash({"completion", "b"}), "bash\n");
  EXPECT_EQ(completions_in_bash({"simulate", "allr"}), "allreduce\n");
  EXPECT_EQ(completions_in_bash({"run", "--bind", ""}), "core|none\n");
  EXPECT_EQ(completions_in_zsh({"checkpoint", ""}), "show verify export\n");
  EXPECT_EQ(completions_in_zsh({"run", "--bind", ""}), "core none\n");
  EXPECT_THAT(completions_in_zsh({"completion", ""}), HasSubstr("bash zsh"));
}

TEST(Completion, OffersFilesWhereOneIsExpected) {
  TemporaryFolder folder;
  write_file(folder / "my file", "");
  const auto offers = [&](const std::vector<std::string>& words) {
    return completions_in_bash(words, folder.path());
  };
  EXPECT_EQ(offers({"run", "--", ""}), "my file\n");
  EXPECT_EQ(offers({"run", "--", "true", "--n"}), "\n");
  EXPECT_EQ(offers({"run", "--log-dir", ""}), "my file\n");
  EXPECT_EQ(offers({"generate", "m"}), "my file\n");
  EXPECT_THAT(offers({"run", ""}), AllOf(HasSubstr("--nproc-per-node|"), HasSubstr("|my file\n")));
  EXPECT_THAT(offers({"checkpoint", "verify", ""}), HasSubstr("|my file\n"));
  EXPECT_THAT(offers({"doctor", ""}), Not(HasSubstr("my file")));
  EXPECT_THAT(offers({"lab", "start", ""}), Not(HasSubstr("my file")));
  EXPECT_EQ(completions_in_zsh({"run", "--", "true", ""}), "FILES\n");
  EXPECT_EQ(completions_in_zsh({"run", "--log-dir", ""}), "FILES\n");
}

}  // namespace
}  // namespace lockstep::test
