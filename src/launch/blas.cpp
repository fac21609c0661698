#include "launch/blas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "launch/capture.h"

namespace lockstep::launch {

namespace {

constexpr std::string_view kCoreType = "OPENBLAS_CORETYPE";

/// Kernels above the SSE ones, by the names that OpenBLAS 0.3.21 to 0.3.29 gives them; all others are SSE.
struct Kernels {
  std::string_view core;
  int tier;
};
constexpr std::array kKernels = {Kernels{"sandybridge", 1}, Kernels{"bulldozer", 1},
                                 Kernels{"piledriver", 1},  Kernels{"steamroller", 1},
                                 Kernels{"excavator", 2},   Kernels{"haswell", 2},
                                 Kernels{"zen", 2},         Kernels{"skylakex", 3},
                                 Kernels{"cooperlake", 3},  Kernels{"sapphirerapids", 3}};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return lower;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string why_not(const Captured& run, const std::filesystem::path& helper) {
  if (!run.started) return fmt::format("{}: {}", helper.string(), run.errors);
  if (run.timed_out) return "OpenBLAS did not answer within 5 s";
  if (run.signal != 0) return fmt::format("loading OpenBLAS ended with signal {}", run.signal);
  const std::string said = first_line(run.errors);
  return said.empty() ? fmt::format("loading OpenBLAS ended with exit code {}", run.exit_code) : said;
}

}  // namespace

OpenBlas probe_openblas(const Environment& environment, const std::filesystem::path& helper) {
  Environment settings = environment;
  settings["OPENBLAS_NUM_THREADS"] = "1";  // its threads would only cost time here
  const Captured run = capture({helper.string()}, settings, std::chrono::seconds(5));
  OpenBlas openblas;
  const auto line_end = run.output.find('\n');
  if (!run.ok() || line_end == std::string::npos) {
    openblas.problem = why_not(run, helper);
    return openblas;
  }
  openblas.found = true;
  openblas.core = run.output.substr(0, line_end);
  openblas.config = first_line(run.output.substr(line_end + 1));
  return openblas;
}

OpenBlas probe_openblas(const Environment& environment) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return probe_openblas(environment, program.parent_path() / "lockstep-blas-probe");
}

std::string best_coretype(const CpuFeatures& cpu) {
  const bool amd = cpu.vendor == "AuthenticAMD" || cpu.vendor == "HygonGenuine";
  if (cpu.avx512) return "SKYLAKEX";
  if (cpu.avx2 && cpu.fma) return amd ? "ZEN" : "HASWELL";
  return cpu.avx ? "SANDYBRIDGE" : "";
}

int kernel_tier(std::string_view core) {
  const std::string name = lower_case(core);
  for (const auto& kernels : kKernels) {
    if (kernels.core == name) return kernels.tier;
  }
  return 0;
}

std::string_view tier_name(int tier) {
  constexpr std::array<std::string_view, 4> kNames = {"SSE", "AVX", "AVX2", "AVX-512"};
  return kNames.at(static_cast<size_t>(tier));
}

std::string asked_coretype(const Environment& environment) {
  const auto found = environment.find(std::string(kCoreType));
  return found == environment.end() ? "" : found->second;
}

Environment with_coretype(Environment environment, const std::string& coretype) {
  environment.erase(std::string(kCoreType));
  if (!coretype.empty()) environment.emplace(kCoreType, coretype);
  return environment;
}

BlasChoice choose_coretype(const CpuFeatures& cpu, const OpenBlas& openblas, const Environment& environment) {
  const std::string asked = asked_coretype(environment);
  if (!asked.empty()) return {"", fmt::format("{}={} is the user's own setting", kCoreType, asked)};
  if (!openblas.found) return {"", fmt::format("no OpenBLAS found: {}", openblas.problem)};
  const std::string best = best_coretype(cpu);
  const int chosen_tier = kernel_tier(openblas.core);
  const int best_tier = kernel_tier(best);
  if (best_tier <= chosen_tier) {
    return {"", fmt::format("OpenBLAS chooses {} by itself; nothing better is known for this CPU",
                            openblas.core)};
  }
  return {best, fmt::format("OpenBLAS takes this CPU for {} ({}), but it has {}", openblas.core,
                            tier_name(chosen_tier), tier_name(best_tier))};
}

}  // namespace lockstep::launch
