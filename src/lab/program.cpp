#include "lab/program.h"

#include <fmt/format.h>
#include <unistd.h>
#include <wordexp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
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
  throw Error(fmt::format("lab: the build in {} has no {}; hint: 'rm -r build' starts over",
                          build_folder(course).string(), host_of(lesson)));
}

/// The file that goes round a learner's: its code, what ties it to the check, and what the host looks for.
/// The check's own headers come first, so that no macro of the learner's reaches them.
std::string wrapper(const Lesson& lesson, const std::filesystem::path& file, bool provides) {
  const auto tie = provides ? "provide.inc" : "seam.inc";
  const auto entry =
      provides ? "extern \"C\" void lab_provide() { my_work::lab_provide(); }"
               : "extern \"C\" void lab_check(lab::Checker& checker) { my_work::lab_check(checker); }";
  return fmt::format("#include \"{0}/check.h\"\n#include \"{1}\"\n#include \"{0}/{2}\"\n{3}\n", lesson.name,
                     file.string(), tie, entry);
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

struct Compiled {
  bool ok = false;
  std::string words;  ///< The compiler's.
};

/// Compiles to a shared object.
Compiled compile(const Course& course, const Lesson& lesson, const std::filesystem::path& file,
                 const std::filesystem::path& object, bool provides, bool sanitized) {
  const auto source = object.string() + ".cpp";
  std::ofstream(source) << wrapper(lesson, file, provides);
  auto command = compiler_of(course, lesson);
  // Without its return statement a function may do anything, also what the check asks for.
  for (const char* word :
       {"-shared", "-fdiagnostics-color=never", "-Wno-unused-function", "-Werror=return-type"})
    command.emplace_back(word);
  if (sanitized) {
    for (const char* word : {"-fsanitize=address,undefined", "-fno-sanitize=vptr",
                             "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1"})
      command.emplace_back(word);
  }
  command.insert(command.end(), {"-o", object.string(), source});
  const auto built = launch::capture(command, launch::current_environment(), kCompileLimit);
  return {built.ok(), built.timed_out ? fmt::format("the compiler took more than {} s", kCompileLimit.count())
                                      : retold(built.errors + built.output, file, source)};
}

/// A function of Lockstep itself that the code calls, although the lesson is to write it; "" if there is
/// none.
std::string library_call(const Lesson& lesson, const std::filesystem::path& object) {
  if (lesson.may_call_library) return "";
  const auto names = launch::capture({"nm", "--undefined-only", "--demangle", object.string()},
                                     launch::current_environment(), kCompileLimit);
  const auto at = names.output.find(" lockstep::");
  return at == names.output.npos ? "" : names.output.substr(at + 1, names.output.find('\n', at) - at - 1);
}

/// The sanitizers' libraries, which must be loaded before all others.
std::string sanitizer_libraries(const Course& course, const Lesson& lesson) {
  std::string paths;
  for (const char* name : {"libasan.so", "libubsan.so"}) {
    const auto found =
        launch::capture({compiler_of(course, lesson)[0], fmt::format("-print-file-name={}", name)},
                        launch::current_environment(), kCompileLimit);
    paths += (paths.empty() ? "" : " ") + found.output.substr(0, found.output.find('\n'));
  }
  return paths;
}

/// What the host's end means if it left no verdict: the learner's code runs in children of it, but for what
/// runs while it is loaded.
Verdict died(const launch::Captured& run) {
  Verdict verdict{.kind = Verdict::Kind::kDied};
  if (run.timed_out) {
    verdict.name = "went on for too long";
    verdict.what = fmt::format("after {} s it was still running", kCheckLimit.count());
    verdict.meaning = "Your code sleeps, or waits for something that never comes.";
  } else {
    verdict.name =
        run.signal != 0 ? fmt::format("crashed by SIG{}", sigabbrev_np(run.signal)) : "left by itself";
    verdict.what = run.signal != 0
                       ? fmt::format("the system ended it ({}) while it was loaded", strsignal(run.signal))
                       : fmt::format(
                             "your code ended the whole process with exit code {} while it "
                             "was loaded",
                             run.exit_code);
    verdict.meaning =
        "Global variables are initialised before the check begins. Keep their constructors simple.";
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
                 const Scratch& scratch, const std::vector<std::string>& earlier, bool sanitized) {
  std::vector<std::string> command = {(build_folder(course) / "bin" / host_of(lesson)).string(),
                                      (scratch / (sanitized ? "sanitized.so" : "code.so")).string(),
                                      "--parent",
                                      std::to_string(getpid()),
                                      "--seed",
                                      std::to_string(request.seed),
                                      "--world",
                                      std::to_string(request.world),
                                      "--cpu",
                                      std::to_string(sanitized            ? 10
                                                     : lesson.needs_torch ? 12
                                                                          : 5),
                                      "--result",
                                      (scratch / "result.json").string()};
  for (const auto& object : earlier) command.insert(command.end(), {"--with", object});
  auto environment = launch::current_environment();
  environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] =
      "1";  // ranks take turns, threads would spin
  if (sanitized) {
    environment["LD_PRELOAD"] = sanitizer_libraries(course, lesson);
    environment["ASAN_OPTIONS"] = "detect_leaks=1:leak_check_at_exit=0:detect_stack_use_after_return=1";
    environment["UBSAN_OPTIONS"] = "print_stacktrace=1";
  }
  std::filesystem::remove(scratch / "result.json");
  const auto run = launch::capture(command, environment, kCheckLimit);
  nlohmann::json result;
  if (std::filesystem::exists(scratch / "result.json")) {
    result = nlohmann::json::parse(read_text(scratch / "result.json"), nullptr, /*allow_exceptions=*/false);
  }
  Verdict verdict = run.exit_code <= 1 && !run.timed_out && result.is_object()
                        ? read_result(result, lesson, request)
                        : died(run);
  verdict.output = run.output + run.errors;
  return verdict;
}

}  // namespace

void build_host(const Course& course, const Lesson& lesson, void (*say)(const std::string& text),
                bool (*stopped)()) {
  const auto ninja = [&](bool dry, std::chrono::seconds limit,
                         const std::function<void(const std::string&)>& watch) {
    std::vector<std::string> command = {"ninja", "-C", build_folder(course).string(), host_of(lesson)};
    if (dry) command.emplace_back("-n");
    auto environment = launch::current_environment();
    environment["NINJA_STATUS"] = "[%f of %t] ";
    return launch::capture(command, environment, limit, stopped, watch);
  };
  if (ninja(true, std::chrono::seconds(60), {}).output.find("no work to do") != std::string::npos) return;
  say(lesson.needs_torch
          ? "building the checks of the lessons with LibTorch, once: this takes a minute or two"
          : "building the checks of the lessons without LibTorch, once: this takes half a minute");
  auto said = Clock::now();
  const auto tell = [&](const std::string& output) {
    const auto line = output.rfind("\n[");
    if (line == std::string::npos || seconds_since(said) < 10) return;
    said = Clock::now();
    say("built " + output.substr(line + 2, output.find(']', line) - line - 2));
  };
  const auto built = ninja(false, std::chrono::seconds(1800), tell);
  if (!built.ok() && !stopped())
    throw Error(fmt::format("lab: building {} failed:\n{}{}", host_of(lesson), built.output, built.errors));
}

Verdict check_file(const Course& course, const Lesson& lesson, const std::filesystem::path& work,
                   const CheckRequest& asked) {
  CheckRequest request = asked;
  if (request.seed == 0) request.seed = 1 + std::random_device{}() % 999'999;
  launch::become_subreaper();
  const Scratch scratch(build_folder(course) / "labs");
  const auto build_start = Clock::now();
  const auto file = std::filesystem::absolute(work / lesson.file);
  // The second build finds what the first one only survives: reads and writes outside, leaks, undefined
  // behaviour.
  const bool sanitizes = !lesson.needs_torch;
  auto sanitized = std::async(sanitizes ? std::launch::async : std::launch::deferred, [&] {
    return compile(course, lesson, file, scratch / "sanitized.so", false, true);
  });
  auto compiled = compile(course, lesson, file, scratch / "code.so", false, false);
  const std::string warnings = compiled.words;
  std::vector<std::string> earlier;
  for (const int number : request.mine ? lesson.uses : std::vector<int>{}) {
    if (!compiled.ok) break;
    const auto& other = course.lesson(number);
    const auto object = scratch / fmt::format("earlier{:02}.so", number);
    compiled = compile(course, other, std::filesystem::absolute(work / other.file), object, true, false);
    earlier.push_back(object.string());
  }
  const bool has_sanitized = sanitizes && sanitized.get().ok;
  const double build_s = seconds_since(build_start);
  Verdict verdict;
  if (!compiled.ok) {
    verdict.output = compiled.words;
    verdict.build_s = build_s;
    return verdict;
  }
  const auto check_start = Clock::now();
  if (const auto call = library_call(lesson, scratch / "code.so"); !call.empty()) {
    verdict.kind = Verdict::Kind::kRefused;
    verdict.name = "library called";
    verdict.what = "your code calls " + call;
    verdict.meaning =
        "This lesson is to write it yourself. The lab:: functions that its text names are yours to use.";
  } else {
    verdict = run_host(course, lesson, request, scratch, earlier, false);
    if (verdict.passed() && has_sanitized) {
      if (auto second = run_host(course, lesson, request, scratch, earlier, true); !second.passed())
        verdict = std::move(second);
    }
  }
  const auto left = launch::living_descendants(getpid()).size();
  launch::kill_descendants(Clock::now() + std::chrono::seconds(10));
  if (left > 0) {
    verdict.notes.push_back(fmt::format("your code left {} {} behind; {} ended", left,
                                        left == 1 ? "process" : "processes",
                                        left == 1 ? "it was" : "they were"));
  }
  verdict.warnings = warnings;
  verdict.seed = request.seed;
  verdict.build_s = build_s;
  verdict.check_s = seconds_since(check_start);
  return verdict;
}

}  // namespace lockstep::lab
