#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data.h"
#include "lab/world.h"

namespace lab {

/// Why a check refused the code.
struct Failure {
  std::string name;     ///< A few words, the same for the same mistake: `whole buffer sent`.
  std::string what;     ///< What came and what was expected, on which rank, in which step.
  std::string meaning;  ///< What that usually means, and where to look.
  int world = 0;        ///< To replay it; 0 if worlds do not matter.
  uint64_t seed = 0;
};

/// What a check is asked to do.
struct CheckOptions {
  uint64_t seed = 1;
  int world = 0;  ///< This world alone; 0: all that the check has.
  int cpu_s = 5;  ///< CPU time after which a child's loop counts as endless.
};

/// How a check went.
struct CheckResult {
  std::vector<std::string> proved;  ///< A sentence for each part that passed.
  bool has_failed = false;
  Failure failure;
  std::vector<std::string> notes;  ///< Tables and numbers worth seeing, failed or not.
  Report shown;                    ///< The run that `lockstep lab view` draws.
  int shown_world = 0;
};

/// What a lesson's check uses: worlds and seeds to try, a place to run the learner's code, and a way to say
/// what was found.
///
/// The learner's code runs in child processes only (in_child), which hand back what it did as data. The check
/// judges that data in this process, where the learner's code never runs (but for the constructors of its
/// global variables, once they came back in a child), so that it cannot write a verdict: whatever it
/// overwrites, prints or ends is its own child. This holds against accidents and casual tricks, not against
/// an attacker who imitates the protocol.
class Checker {
 public:
  explicit Checker(const CheckOptions& options) : options_(options) {}

  /// The worlds to try: those given, or the one that was asked for.
  std::vector<int> worlds(std::vector<int> all) const;
  uint64_t seed() const { return options_.seed; }
  /// A number that follows from the seed and `salt`: for sizes, orders and values drawn by a check.
  uint64_t draw(uint64_t salt) const;
  /// The same, from `low` to `high`, both included.
  int64_t draw_between(uint64_t salt, int64_t low, int64_t high) const;
  /// Worlds that no text shows, from `low` to `high`: always 6 and 7 if they fit, and `count` drawn ones. Or
  /// the one world that was asked for.
  std::vector<int> fresh_worlds(int count, int low, int high) const;

  /// Runs `body`, which calls the learner's code, in a child process, and returns what it returns as data
  /// (see lab/data.h). Within it run(), expect() and fail() work as usual. If the child does not come to the
  /// end of `body` (a crash, exit(), an endless loop), the check fails by name.
  template <typename Body>
  auto in_child(const Body& body) {
    using Result = std::invoke_result_t<Body>;
    if constexpr (std::is_void_v<Result>) {
      run_in_child([&] { return body(), std::string(); });
    } else {
      const std::string bytes = run_in_child([&] {
        std::string packed;
        data::put<std::remove_cvref_t<Result>>(packed, body());
        return packed;
      });
      data::Reader reader(bytes);
      return data::get<std::remove_cvref_t<Result>>(reader);
    }
  }

  /// Runs a world. What goes wrong in it (a deadlock, an exception, a message of another size, ...) is a
  /// failure by that name.
  Report run(WorldOptions options, const std::function<void(Rank&)>& body);
  /// The same for a world that the check ran itself, to say first what it knows better.
  void expect_no_problem(const Report& report);
  /// From here on failures are reported with this world.
  void in_world(int world);
  /// From here on a run's own problems are reported with this name, as of the function that is tried.
  void in_part(const std::string& name);

  /// Goes on if `holds`.
  void expect(bool holds, const std::string& name, const std::string& what, const std::string& meaning);
  [[noreturn]] void fail(const std::string& name, const std::string& what, const std::string& meaning);
  /// A part of the check has passed.
  void proved(const std::string& sentence);
  void note(const std::string& text);
  /// This run is the one to look at. A check that fails before it shows one shows its last.
  void show(Report report);

  CheckResult& result() { return result_; }

 private:
  std::string run_in_child(const std::function<std::string()>& body);

  CheckOptions options_;
  int world_ = 0;
  std::string part_;
  Report last_run_;
  CheckResult result_;
};

/// The part of a lesson that tests and learners' programs share: runs a check and never throws.
CheckResult run_check(const std::function<void(Checker&)>& check, const CheckOptions& options);

/// The main() of a learner's program: `--seed S --world W --cpu SECONDS --result FILE`.
int check_main(int argc, char** argv, const std::function<void(Checker&)>& check);

}  // namespace lab
