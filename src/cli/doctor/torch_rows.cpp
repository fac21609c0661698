#include <fmt/format.h>

#include "cli/doctor/rows.h"

namespace lockstep::cli::doctor {

namespace {

/// `Zen (AVX2)`; CPUs without CPUID have no tiers here.
std::string kernels_text(const Facts& facts, const std::string& core) {
  if (facts.cpu.vendor.empty()) return core;
  return fmt::format("{} ({})", core, launch::tier_name(launch::kernel_tier(core)));
}

std::string rate_text(const TorchProbe& torch) {
  return torch.ok ? fmt::format(": {:.1f} GFLOP/s on one core", torch.gflops) : "";
}

/// What sets OPENBLAS_CORETYPE right.
std::string mend_coretype(const BlasFacts& blas) {
  if (blas.right.coretype.empty()) return "unset OPENBLAS_CORETYPE";
  return fmt::format("export OPENBLAS_CORETYPE={}", blas.right.coretype);
}

std::string right_text(const Facts& facts) {
  const std::string kernels = kernels_text(facts, facts.blas.mended.core);
  const TorchProbe& torch = facts.blas.mended_torch;
  return torch.ok ? fmt::format("the right ones, {}, reach {:.1f}", kernels, torch.gflops)
                  : fmt::format("the right ones are {}", kernels);
}

std::string mend_libtorch(const Facts& facts) {
  if (facts.blas.torch.missing) return "cmake --preset release && cmake --build --preset release";
  for (const char* name : {"LD_LIBRARY_PATH", "LD_PRELOAD"}) {
    if (!facts.variable(name).empty()) return fmt::format("unset {}", name);
  }
  return mend_library(facts, facts.sudo() + "apt-get install --reinstall libtorch-dev libopenblas0-pthread");
}

}  // namespace

Row libtorch_row(const Facts& facts) {
  const TorchProbe& torch = facts.blas.working_torch();
  Row row{.name = "LibTorch"};
  if (!torch.ok) {
    row.status = Status::kFault;
    row.value = torch.missing ? "lockstep-torch, the part of Lockstep that uses it, is not built"
                              : fmt::format("lockstep-torch does not run: {}", torch.problem);
    row.mend = mend_libtorch(facts);
    return row;
  }
  row.value = fmt::format("{}, CPU capability {}", torch.version, torch.cpu_capability);
  row.names = {{"version", torch.version}, {"cpu_capability", torch.cpu_capability}};
  const std::string asked = facts.variable("ATEN_CPU_CAPABILITY");
  const bool vectors = torch.cpu_capability.find("AVX") != std::string::npos &&
                       torch.cpu_capability.find("NO AVX") == std::string::npos;
  if (facts.cpu.avx2 && !vectors) {
    row.status = Status::kWarning;
    row.value += "; this CPU has AVX2";
    row.mend = asked.empty() ? facts.sudo() + "apt-get install --reinstall libtorch-dev"
                             : "unset ATEN_CPU_CAPABILITY";
  }
  return row;
}

Row openblas_row(const Facts& facts) {
  const BlasFacts& blas = facts.blas;
  Row row{.name = "OpenBLAS kernels"};
  if (blas.torch.ok) row.numbers = {{"gflops", blas.torch.gflops}};
  if (blas.mended_torch.ok) row.numbers["right_gflops"] = blas.mended_torch.gflops;
  if (!blas.found.found || (blas.torch.ok && blas.torch.blas_core.empty())) {
    row.status = Status::kWarning;
    row.value = blas.found.found ? fmt::format("LibTorch multiplies with {} instead{}",
                                               blas.torch.blas_library, rate_text(blas.torch))
                                 : blas.found.problem;
    row.mend = mend_library(
        facts, fmt::format("{0}apt-get install libopenblas0-pthread && {0}update-alternatives --auto "
                           "libblas.so.3-$(uname -m)-linux-gnu",
                           facts.sudo()));
    return row;
  }
  row.names = {{"core", blas.found.core}, {"right_core", blas.mended.core}};
  const std::string asked = launch::asked_coretype(facts.environment);
  const int tier = launch::kernel_tier(blas.found.core);
  const int cpu_tier = launch::kernel_tier(launch::best_coretype(facts.cpu));
  row.value = kernels_text(facts, blas.found.core) + rate_text(blas.torch);
  if (!facts.cpu.vendor.empty() && !asked.empty() && tier > cpu_tier) {
    row.status = Status::kFault;
    row.value =
        fmt::format("OPENBLAS_CORETYPE={} asks for {}, which this CPU lacks", asked, launch::tier_name(tier));
    if (!blas.torch.ok) row.value += fmt::format(": lockstep-torch was {}", blas.torch.problem);
    row.mend = mend_coretype(blas);
  } else if (launch::kernel_tier(blas.mended.core) > tier) {
    row.status = Status::kWarning;
    row.value +=
        fmt::format("; {}; {}", right_text(facts),
                    asked.empty() ? "OpenBLAS misreads this CPU" : "OPENBLAS_CORETYPE is set too low");
    row.mend = mend_coretype(blas);
  } else {
    row.value += ", the right ones for this CPU";
  }
  return row;
}

}  // namespace lockstep::cli::doctor
