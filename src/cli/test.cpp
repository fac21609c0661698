#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

struct TestOptions {
  std::string name;
  bool list = false;
};

int test(const TestOptions& options) {
  // <tree>/build/release/bin/lockstep
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto script = self.parent_path().parent_path().parent_path().parent_path() / "tools" / "test";
  if (!std::filesystem::exists(script)) {
    throw UsageError(
        "lockstep test: this command was not built in a source tree; hint: use ./lockstep test there");
  }
  const std::string word = options.list ? "--list" : options.name;
  execl(script.c_str(), script.c_str(), word.empty() ? nullptr : word.c_str(), nullptr);
  throw Error(fmt::format("cannot start {}: {}", script.string(), std::strerror(errno)));
}

}  // namespace

Action define_test(Flags flags) {
  const auto options = std::make_shared<TestOptions>();
  flags.word("name", options->name, "A part of the tests, or a pattern of test names (default: everything)",
             false);
  flags.toggle("--list", options->list, "Name the parts");
  return [options](const Invocation&) { return test(*options); };
}

}  // namespace lockstep::cli
