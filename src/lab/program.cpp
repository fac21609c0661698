#include "lab/program.h"

#include <fmt/format.h>
#include <unistd.h>
#include <wordexp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/capture.h"
#include "launch/process_tree.h"
#include "lockstep/error.h"

namespace lockstep::lab {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kCompileLimit{120};
constexpr std::chrono::seconds kCheckLimit{60};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::filesystem::path build_folder(const Course& course) {
  return course.tree / "build" / "release";
}

std::string host_of(const Lesson& lesson) {
  return lesson.needs_torch ? "lab-host-torch" : "lab-host";
}

/// The words of a shell's command line: paths with blanks are quoted there.
std::vector<std::string> shell_words(const std::string& line) {
  wordexp_t expanded{};
  if (wordexp(line.c_str(), &expanded, WRDE_NOCMD) != 0) throw Error("lab: cannot read the command " + line);
  const std::vector<std::string> words(expanded.we_wordv, expanded.we_wordv + expanded.we_wordc);
  wordfree(&expanded);
  return words;
}

/// The compiler's words for the host's own file: those that a learner's file must be compiled with to fit it,
/// precompiled header included. What says what is compiled to where is left out.
std::vector<std::string> compiler_of(const Course& course, const Lesson& lesson) {
  const auto json = nlohmann::json::parse(read_text(build_folder(course) / "compile_commands.json"));
  const auto place = "labs/CMakeFiles/" + host_of(lesson) + ".dir/";
  for (const auto& entry : json) {
    const auto command = entry.at("command").get<std::string>();
    if (command.find(place) == std::string::npos) continue;
    auto words = shell_words(command);
    for (const char* const flag : {"-o", "-c"}) {
      const auto found = std::find(words.begin(), words.end(), flag);
      if (words.end() - found >= 2) words.erase(found, found + 2);
    }
    return words;
  }
  throw Error(fmt::format("lab: the build in {} knows no {}; hint: 'rm -r build' starts anew",
                          build_folder(course).string(), host_of(lesson)));
}

/// The file that goes round a learner's: its code, what ties it to the check, and what the host looks for.
std::string wrapper(const Lesson& lesson, const std::filesystem::path& file, bool provides) {
  const auto tie = provides ? "provide.inc" : "seam.inc";
  const auto entry =
      provides ? "extern \"C\" void lab_provide() { my_work::lab_provide(); }"
               : "extern \"C\" void lab_check(lab::Checker& checker) { my_work::lab_check(checker); }";
  return fmt::format("#include \"{}\"\n#include \"{}/{}\"\n{}\n", file.string(), lesson.name, tie, entry);
}

/// The compiler's words as a learner reads them: their file as they know it, without the one that goes round
/// it.
std::string retold(const std::string& words, const std::filesystem::path& file, const std::string& source) {
  const auto here = file.parent_path().parent_path().string() + "/";
  std::istringstream stream(words);
  std::string text;
  for (std::string line; std::getline(stream, line);) {
    if (line.find(source) != std::string::npos) continue;
    for (size_t at = 0; (at = line.find(here, at)) != std::string::npos;) line.erase(at, here.size());
    text += line + '\n';
  }
  return text;
}

/// Compiles to a shared object; "" if that worked, else the compiler's words.
std::string compile(const Course& course, const Lesson& lesson, const std::filesystem::path& file,
                    const std::filesystem::path& object, bool provides) {
  const auto source = object.string() + ".cpp";
  std::ofstream(source) << wrapper(lesson, file, provides);
  auto command = compiler_of(course, lesson);
  for (const char* word : {"-shared", "-fdiagnostics-color=never", "-Wno-unused-function", "-o"})
    command.emplace_back(word);
  command.push_back(object.string());
  command.push_back(source);
  const auto built = launch::capture(command, launch::current_environment(), kCompileLimit);
  if (built.ok()) return "";
  return built.timed_out ? fmt::format("the compiler took more than {} s", kCompileLimit.count())
                         : retold(built.errors + built.output, file, source);
}

/// What a run's end means if it left no verdict.
Verdict died(const launch::Captured& run, const std::string& progress) {
  Verdict verdict{.kind = Verdict::Kind::kDied};
  const auto where = progress.empty() ? std::string("while it started") : "in " + progress;
  if (run.timed_out) {
    verdict.name = "went on for too long";
    verdict.what = fmt::format("after {} s it was still running, {}", kCheckLimit.count(), where);
    verdict.meaning =
        "A loop that never ends, or a wait for something that never comes. Which condition never becomes "
        "false?";
  } else if (run.signal == SIGABRT && run.errors.find("Assertion") != std::string::npos) {
    verdict.name = "index out of range";
    verdict.what = "a span or a vector was asked for an element that it has not got, " + where;
    verdict.meaning =
        "Compare the index with size(). The line that the assertion names is in the header; the call is "
        "yours.";
  } else if (run.signal != 0) {
    verdict.name = fmt::format("crashed by SIG{}", sigabbrev_np(run.signal));
    verdict.what = fmt::format("the system ended it ({}), {}", strsignal(run.signal), where);
    verdict.meaning =
        "SIGSEGV: memory that is not yours, often an index beyond the end or a buffer that is gone. SIGFPE: "
        "an integer divided "
        "by zero. SIGABRT: an exception that nobody caught, or a failed assertion.";
  } else {
    verdict.name = "left by itself";
    verdict.what =
        fmt::format("your code ended the whole process with exit code {}, {}", run.exit_code, where);
    verdict.meaning = "Do not call exit(): return, or throw.";
  }
  return verdict;
}

Verdict read_result(const nlohmann::json& json, const Lesson& lesson, const CheckRequest& request) {
  Verdict verdict;
  verdict.kind = json.at("passed") ? Verdict::Kind::kPassed : Verdict::Kind::kRefused;
  verdict.proved = json.at("proved").get<std::vector<std::string>>();
  verdict.notes = json.at("notes").get<std::vector<std::string>>();
  if (!verdict.passed()) {
    verdict.name = json.at("failure").at("name");
    verdict.what = json.at("failure").at("what");
  }
  if (auto trace = json.at("trace"); !trace.at("events").empty()) {
    trace["verdict"] = {{"passed", verdict.passed()}, {"name", verdict.name}, {"what", verdict.what}};
    verdict.trace = trace.dump();
  }
  if (verdict.passed()) return verdict;
  const auto& failure = json.at("failure");
  verdict.meaning = failure.at("meaning");
  const int world = failure.at("world");
  verdict.replay =
      fmt::format("lockstep lab check {} --seed {}{}{}", lesson.number, failure.at("seed").get<uint64_t>(),
                  world > 0 ? fmt::format(" --world {}", world) : "", request.mine ? " --mine" : "");
  return verdict;
}

/// A folder of this process alone, gone with it.
class Scratch {
 public:
  explicit Scratch(const std::filesystem::path& folder) : path_(folder / fmt::format("check-{}", getpid())) {
    remove_abandoned(folder);
    std::filesystem::create_directories(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  /// What a check left that was interrupted.
  static void remove_abandoned(const std::filesystem::path& folder) {
    if (!std::filesystem::exists(folder)) return;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      if (!name.starts_with("check-") || std::filesystem::exists("/proc/" + name.substr(6))) continue;
      std::error_code ignored;
      std::filesystem::remove_all(entry.path(), ignored);
    }
  }

  std::filesystem::path path_;
};

/// Runs the host and reads what it found.
Verdict run_host(const Course& course, const Lesson& lesson, const CheckRequest& request,
                 const Scratch& scratch, const std::vector<std::string>& earlier) {
  std::vector<std::string> command = {(build_folder(course) / "bin" / host_of(lesson)).string(),
                                      (scratch / "code.so").string(),
                                      "--parent",
                                      std::to_string(getpid()),
                                      "--seed",
                                      std::to_string(request.seed),
                                      "--world",
                                      std::to_string(request.world),
                                      "--result",
                                      (scratch / "result.json").string(),
                                      "--progress",
                                      (scratch / "progress").string()};
  for (const auto& object : earlier) command.insert(command.end(), {"--with", object});
  auto environment = launch::current_environment();
  environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] =
      "1";  // ranks take turns, threads would spin
  const auto run = launch::capture(command, environment, kCheckLimit);
  nlohmann::json result;
  if (std::filesystem::exists(scratch / "result.json")) {
    result = nlohmann::json::parse(read_text(scratch / "result.json"), nullptr, /*allow_exceptions=*/false);
  }
  if (result.contains("not_loaded")) {
    Verdict verdict{.kind = Verdict::Kind::kNotBuilt};
    verdict.output = run.errors;
    return verdict;
  }
  std::string progress;
  if (std::filesystem::exists(scratch / "progress"))
    progress = read_text(scratch / "progress").c_str();  // to the first zero byte
  Verdict verdict;
  if (run.exit_code <= 1 && !run.timed_out && result.is_object()) {
    verdict = read_result(result, lesson, request);
  } else {
    verdict = died(run, progress);
  }
  verdict.output = run.output + run.errors;
  return verdict;
}

}  // namespace

void build_host(const Course& course, const Lesson& lesson, void (*say)(const std::string& text),
                bool (*stopped)()) {
  const auto ninja = [&](bool dry, std::chrono::seconds limit) {
    std::vector<std::string> command = {"ninja", "-C", build_folder(course).string(), host_of(lesson)};
    if (dry) command.emplace_back("-n");
    return launch::capture(command, launch::current_environment(), limit, stopped);
  };
  if (ninja(true, std::chrono::seconds(60)).output.find("no work to do") != std::string::npos) return;
  say(lesson.needs_torch
          ? "building what the checks of lessons with LibTorch need (the first time takes a few minutes)"
          : "building what the checks need (the first time takes half a minute)");
  const auto built = ninja(false, std::chrono::seconds(1800));
  if (!built.ok() && !stopped())
    throw Error(fmt::format("lab: building {} failed:\n{}{}", host_of(lesson), built.output, built.errors));
}

Verdict check_file(const Course& course, const Lesson& lesson, const std::filesystem::path& work,
                   const CheckRequest& request) {
  launch::become_subreaper();
  const Scratch scratch(build_folder(course) / "labs");
  const auto build_start = Clock::now();
  Verdict verdict;
  std::vector<std::string> earlier;
  verdict.output =
      compile(course, lesson, std::filesystem::absolute(work / lesson.file), scratch / "code.so", false);
  for (const int number : request.mine ? lesson.uses : std::vector<int>{}) {
    if (!verdict.output.empty()) break;
    const auto& other = course.lesson(number);
    const auto object = scratch / fmt::format("earlier{:02}.so", number);
    verdict.output = compile(course, other, std::filesystem::absolute(work / other.file), object, true);
    earlier.push_back(object.string());
  }
  const double build_s = seconds_since(build_start);
  if (!verdict.output.empty()) {
    verdict.build_s = build_s;
    return verdict;
  }
  const auto check_start = Clock::now();
  verdict = run_host(course, lesson, request, scratch, earlier);
  const auto left = launch::living_descendants(getpid()).size();
  launch::kill_descendants(Clock::now() + std::chrono::seconds(10));
  if (left > 0) {
    verdict.notes.push_back(fmt::format("your code left {} {} behind; {} ended", left,
                                        left == 1 ? "process" : "processes",
                                        left == 1 ? "it was" : "they were"));
  }
  verdict.build_s = build_s;
  verdict.check_s = seconds_since(check_start);
  return verdict;
}

}  // namespace lockstep::lab
