#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/build_info.h"
#include "cli/torch_verbs.h"
#include "lockstep/error.h"
#include "train/run/cpu_capability.h"

namespace lockstep::cli {

namespace {

using nlohmann::json;

/// A function of the BLAS that LibTorch brought into this process; null when that BLAS has no such function.
template <typename Function>
Function* blas_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// The file of the library whose sgemm LibTorch calls.
std::string blas_library() {
  Dl_info info{};
  void* const sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  if (sgemm == nullptr || dladdr(sgemm, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

json blas_facts() {
  json facts = {{"library", blas_library()}, {"core", nullptr}, {"config", nullptr}};
  if (auto* core = blas_function<const char*()>("openblas_get_corename")) facts["core"] = core();
  if (auto* config = blas_function<const char*()>("openblas_get_config")) facts["config"] = config();
  return facts;
}

json thread_facts() {
  json facts = {{"torch", at::get_num_threads()}, {"openblas", nullptr}};
  if (auto* count = blas_function<int()>("openblas_get_num_threads")) facts["openblas"] = count();
  return facts;
}

at::Tensor view(std::vector<float>& values, int64_t rows, int64_t columns) {
  return at::from_blob(values.data(), {rows, columns});
}

/// Whole numbers small enough that every sum is exact: the product must be right to the last bit.
void check_product() {
  constexpr int64_t kRows = 67, kInner = 131, kColumns = 45;
  std::vector<float> a(kRows * kInner), b(kInner * kColumns);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 7 % 31) - 15);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(static_cast<int>(i * 11 % 29) - 14);
  const at::Tensor product = view(a, kRows, kInner).mm(view(b, kInner, kColumns)).contiguous();
  const float* const found = product.data_ptr<float>();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      float expected = 0;
      for (int64_t k = 0; k < kInner; ++k) {
        expected += a[static_cast<size_t>(row * kInner + k)] * b[static_cast<size_t>(k * kColumns + column)];
      }
      const float got = found[row * kColumns + column];
      if (got != expected) {
        throw Error(fmt::format("matrix product is wrong: element ({}, {}) is {}, expected {}", row, column,
                                got, expected));
      }
    }
  }
}

/// The rate of a square float product on one thread: the median of seven, after one to warm up.
json gemm_facts() {
  constexpr int64_t kSize = 1024;
  constexpr int kSamples = 7;
  // LibTorch's setting does not reach the threads of OpenBLAS.
  at::set_num_threads(1);
  if (auto* set = blas_function<void(int)>("openblas_set_num_threads")) set(1);
  check_product();
  std::vector<float> a(kSize * kSize, 0.5F), b(kSize * kSize, 0.25F);
  const at::Tensor left = view(a, kSize, kSize), right = view(b, kSize, kSize);
  left.mm(right);
  std::vector<double> rates;
  for (int i = 0; i < kSamples; ++i) {
    const auto start = std::chrono::steady_clock::now();
    left.mm(right);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(2.0 * kSize * kSize * kSize / seconds.count() * 1e-9);
  }
  std::sort(rates.begin(), rates.end());
  return {{"size", kSize}, {"threads", 1}, {"gflops", rates[kSamples / 2]}, {"samples", rates}};
}

}  // namespace

int run_probe(const Invocation&) {
  json facts = {{"libtorch", LOCKSTEP_TORCH_VERSION}, {"cpu_capability", train::cpu_capability()}};
  facts["threads"] = thread_facts();
  facts["blas"] = blas_facts();
  facts["gemm"] = gemm_facts();
  fmt::print("{}\n", facts.dump(2));
  return 0;
}

}  // namespace lockstep::cli
