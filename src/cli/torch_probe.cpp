#include "cli/torch_probe.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launch/capture.h"
#include "launch/lines.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

constexpr std::chrono::seconds kProbeLimit(60);

std::string why(const launch::Captured& run) {
  if (!run.started) return run.errors;
  if (run.timed_out) return fmt::format("no answer within {} s", kProbeLimit.count());
  if (run.signal != 0) return fmt::format("ended by SIG{}", sigabbrev_np(run.signal));
  const std::string_view said = launch::last_line(run.errors);
  return fmt::format("exit code {}{}{}", run.exit_code, said.empty() ? "" : ": ", said);
}

}  // namespace

TorchProbe parse_torch_probe(const std::string& text) {
  TorchProbe probe;
  try {
    const auto facts = nlohmann::json::parse(text);
    const auto& blas = facts.at("blas");
    const auto& threads = facts.at("threads");
    probe.version = facts.at("libtorch");
    probe.cpu_capability = facts.at("cpu_capability");
    probe.threads = threads.at("torch");
    probe.blas_library = blas.at("library");
    if (!threads.at("openblas").is_null()) probe.blas_threads = threads.at("openblas");
    if (!blas.at("core").is_null()) probe.blas_core = blas.at("core");
    probe.gflops = facts.at("gemm").at("gflops");
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("lockstep-torch probe printed something else than its facts: {}", error.what()));
  }
  probe.ok = true;
  return probe;
}

TorchProbe probe_torch(const launch::Environment& environment) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lockstep-torch";
  const launch::Captured run = launch::capture({program.string(), "probe"}, environment, kProbeLimit);
  if (run.ok()) return parse_torch_probe(run.output);
  TorchProbe probe;
  probe.missing = !run.started;
  probe.problem = why(run);
  return probe;
}

}  // namespace lockstep::cli
