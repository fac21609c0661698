#include "train/run/cpu_capability.h"

#include <ATen/Version.h>
#include <dlfcn.h>

#include <cctype>

namespace lockstep::train {

namespace {

template <typename Function>
Function* blas_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

std::string blas_kernels() {
  if (auto* const core = blas_function<const char*()>("openblas_get_corename")) {
    std::string name = core();
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
  }
  Dl_info info{};
  void* const sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  if (sgemm == nullptr || dladdr(sgemm, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

std::string blas_threads() {
  auto* const count = blas_function<int()>("openblas_get_num_threads");
  return count == nullptr ? "" : std::to_string(count());
}

std::string cpu_capability() {
  // at::get_cpu_capability() came with LibTorch 2; 1.13 tells it in this text only.
  const std::string text = at::show_config();
  const std::string label = "CPU capability usage: ";
  const auto start = text.find(label);
  if (start == std::string::npos) return "";
  const auto first = start + label.size();
  return text.substr(first, text.find('\n', first) - first);
}

}  // namespace lockstep::train
