// The program that checks a learner's code: all lessons' checks are in it, the code comes from a shared
// object.
//
//   lab-host CODE.so --parent PID [--with EARLIER.so]... [--check SYMBOL] [--seed S] [--world W]
//            [--cpu SECONDS] [--result FILE]
#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/checker.h"

namespace {

/// What a learner's shared object exports; see the file that src/lab/program.cpp writes around it.
void* load(const char* path, const char* symbol) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : dlsym(library, symbol);
}

/// What `dlerror` says, without the file, and with the name that a learner wrote.
std::string why_not_loaded() {
  std::string text = dlerror();
  const auto at = text.rfind(": ");
  if (at == std::string::npos) return text;
  text.erase(0, text.rfind(": ", at - 1) + 2);
  const std::string name = text.substr(text.rfind(": ") + 2);
  const std::unique_ptr<char, decltype(&std::free)> written(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), std::free);
  return written == nullptr ? text : text.substr(0, text.size() - name.size()) + written.get();
}

/// Loading runs the constructors of the learner's global variables: in a child first, which must come back
/// from it.
void try_to_load(lab::Checker& checker, const std::vector<std::pair<const char*, const char*>>& objects) {
  const auto problem = checker.in_child([&] {
    lab::tell_progress("the loading of your file, before any call");
    for (const auto& [path, symbol] : objects) {
      if (load(path, symbol) == nullptr) return why_not_loaded();
    }
    return std::string();
  });
  checker.expect(problem.empty(), "cannot be loaded", problem,
                 "Your file declares it and uses it, and defines it nowhere.");
}

/// Ctrl-C ends `lockstep lab`, and with it whatever a learner's code does; also if it has ended already.
void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) raise(SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> rest = {argv[0]};
  std::vector<std::pair<const char*, const char*>> objects = {{argc > 1 ? argv[1] : "", "lab_check"}};
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--parent" && i + 1 < argc) {
      end_with(std::atoi(argv[++i]));
    } else if (word == "--check" && i + 1 < argc) {
      objects.front().second = argv[++i];
    } else if (word == "--with" && i + 1 < argc) {
      objects.emplace_back(argv[++i], "lab_provide");
    } else {
      rest.push_back(argv[i]);
    }
  }
  const auto check = [&](lab::Checker& checker) {
    try_to_load(checker, objects);
    for (size_t i = 1; i < objects.size(); ++i)
      reinterpret_cast<void (*)()>(load(objects[i].first, objects[i].second))();
    reinterpret_cast<void (*)(lab::Checker&)>(load(objects[0].first, objects[0].second))(checker);
  };
  // Without what the learner's code wanted to happen at the end: the verdict is written.
  const int code = lab::check_main(static_cast<int>(rest.size()), rest.data(), check);
  std::fflush(nullptr);
  std::_Exit(code);
}
