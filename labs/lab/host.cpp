// The program that checks a learner's code: all lessons' checks are in it, the code comes from a shared
// object.
//
//   lab-host CODE.so --parent PID [--with EARLIER.so]... [--check SYMBOL] [--seed S] [--world W]
//            [--cpu SECONDS] [--result FILE]
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "lab/checker.h"

namespace {

/// What a learner's shared object exports; see the file that src/lab/program.cpp writes around it.
template <typename Function>
Function load(const char* path, const char* symbol) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fmt::print(stderr, "lab-host: {}\n", dlerror());
    return nullptr;
  }
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

/// Ctrl-C ends `lockstep lab`, and with it whatever a learner's code does; also if it has ended already.
void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) raise(SIGKILL);
}

/// Notes that the check could not begin. No exit code can say so: a learner's code may end with any.
int not_loaded(const std::vector<char*>& words) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (std::string_view(words[i]) == "--result") std::ofstream(words[i + 1]) << "{\"not_loaded\": true}";
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> rest = {argv[0]};
  const char* symbol = "lab_check";
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--parent" && i + 1 < argc) {
      end_with(std::atoi(argv[++i]));
      continue;
    }
    if (word == "--check" && i + 1 < argc) {
      symbol = argv[++i];
      continue;
    }
    if (word != "--with" || i + 1 == argc) {
      rest.push_back(argv[i]);
      continue;
    }
    const auto provide = load<void (*)()>(argv[++i], "lab_provide");
    if (provide == nullptr) return not_loaded(rest);
    provide();
  }
  const auto check = argc > 1 ? load<void (*)(lab::Checker&)>(argv[1], symbol) : nullptr;
  if (check == nullptr) return not_loaded(rest);
  return lab::check_main(static_cast<int>(rest.size()), rest.data(), check);
}
